"""Values so large that the 32-bit offsets of an Arrow column may not hold a thousand of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.sources.model import ShardFacts

LARGE = 1 << 20
"""Bytes from which a value is noted: 1,000 smaller ones stay below half of 2 GiB whatever they are."""


def note_large(facts: ShardFacts, batch: pa.RecordBatch, rows: NDArray[np.int64]) -> None:
    """Remembers column, row and bytes of the large values in a batch."""
    if batch.nbytes < LARGE:
        return
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for index, size in large_values(column, LARGE):
            facts.large_values.setdefault(name, []).append((int(rows[index]), size))


def large_values(array: pa.Array, least: int, at: int = 0) -> Iterator[tuple[int, int]]:
    """Places and sizes of the values of ``least`` bytes or more, found by halving what is large enough."""
    size = array.nbytes
    if size < least:
        return
    if len(array) == 1:
        yield at, size
        return
    half = len(array) // 2
    yield from large_values(array.slice(0, half), least, at)
    yield from large_values(array.slice(half), least, at + half)
