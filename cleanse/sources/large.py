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
        for index, size in _large(column, 0):
            facts.large_values.setdefault(name, []).append((int(rows[index]), size))


def _large(array: pa.Array, at: int) -> Iterator[tuple[int, int]]:
    """Halves the array as long as a part is large enough to hold a large value."""
    size = array.nbytes
    if size < LARGE:
        return
    if len(array) == 1:
        yield at, size
        return
    half = len(array) // 2
    yield from _large(array.slice(0, half), at)
    yield from _large(array.slice(half), at + half)
