"""Batches in few shapes: graph mode compiles once per shape, which costs as much as several batches. NumPy only.

Lengths are rounded up to a rung of a ladder, and a rung with enough batches is compiled for full batches, the last one
filled up with empty rows. A rung with few batches is not worth a compilation: those run operator by operator, in
exactly the shape they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .types import ProbeRecord

#: Powers of two waste a quarter on padding on average, and leave five shapes for the probe's usual 512 tokens.
SHORTEST = 32
#: Measured on two CPU cores with the embedded model: compiling costs what about two PyNative batches cost more.
COMPILE_FROM = 3


@dataclass(frozen=True, slots=True)
class ShapedBatch:
    """Records by index, and the shape their batch gets."""

    indices: tuple[int, ...]
    rows: int
    tokens: int
    compiled: bool


@dataclass(frozen=True, slots=True, eq=False)
class Arrays:
    """A padded batch: ids, targets (rows, tokens) int32; scale, valid (rows, tokens) float32.

    `targets[i, t]` is the token after t; `scale` is 1 / n_tokens where that token is supervised, else 0; `valid` is 1
    at real tokens. Right padding without an attention mask is exact for causal models.
    """

    ids: NDArray[np.int32]
    targets: NDArray[np.int32]
    scale: NDArray[np.float32]
    valid: NDArray[np.float32]


def rung(length: int) -> int:
    """The smallest length of the ladder that holds `length` tokens."""
    size = SHORTEST
    while size < length:
        size *= 2
    return size


def plan_shapes(
    records: Sequence[ProbeRecord],
    token_budget: int,
    *,
    compile_from: int | None = COMPILE_FROM,
    before: Mapping[int, int] | None = None,
) -> list[ShapedBatch]:
    """Batches by length, each of at most `token_budget` tokens with padding, or one record.

    Records without a supervised token are in no batch. `compile_from` is how many batches a shape needs to be compiled,
    None for never; `before` says how many of each length were met in earlier calls.
    """
    order = sorted((i for i, record in enumerate(records) if record.n_tokens), key=lambda i: (len(records[i].ids), i))
    rungs: dict[int, list[int]] = {}
    for i in order:
        rungs.setdefault(rung(len(records[i].ids)), []).append(i)
    batches: list[ShapedBatch] = []
    for tokens, members in sorted(rungs.items()):
        rows = max(1, token_budget // tokens)
        chunks = [tuple(members[start : start + rows]) for start in range(0, len(members), rows)]
        compiled = compile_from is not None and len(chunks) + (before or {}).get(tokens, 0) >= compile_from
        for chunk in chunks:
            longest = len(records[chunk[-1]].ids)
            batches.append(
                ShapedBatch(
                    indices=chunk,
                    rows=rows if compiled else len(chunk),
                    tokens=tokens if compiled else longest,
                    compiled=compiled,
                )
            )
    return batches


def fill(records: Sequence[ProbeRecord], rows: int, tokens: int) -> Arrays:
    """Pads on the right with token 0, and with empty rows up to `rows`. The first token is never a target."""
    ids = np.zeros((rows, tokens), dtype=np.int32)
    targets = np.zeros((rows, tokens), dtype=np.int32)
    scale = np.zeros((rows, tokens), dtype=np.float32)
    valid = np.zeros((rows, tokens), dtype=np.float32)
    for i, record in enumerate(records):
        length = len(record.ids)
        ids[i, :length] = record.ids
        targets[i, : length - 1] = record.ids[1:]
        scale[i, : length - 1] = record.supervised[1:] / np.float32(record.n_tokens)
        valid[i, :length] = 1.0
    return Arrays(ids, targets, scale, valid)
