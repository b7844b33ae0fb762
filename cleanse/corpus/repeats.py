"""Which hashes occur more than once in a corpus, found in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus.shards import Shard, Shards

Hashes = NDArray[np.uint64]
Indices = NDArray[np.int64]
_PARTITION = 1 << 23  # hashes sorted at a time


def equal_groups(
    shards: Shards, n_total: int, column: Callable[[Shard], tuple[Hashes, Indices]]
) -> Iterator[tuple[Hashes, Indices]]:
    """Yields all (hash, number) pairs of a corpus sorted by hash, then number, a range of hashes at a time.

    Args:
        shards: the corpus.
        n_total: how many pairs there may be: decides how many ranges the hashes are cut into.
        column: the pairs of one shard; hash 0 means "none" and is left out.
    """
    n_parts = 1 << max(0, (n_total - 1) // _PARTITION).bit_length()
    for part in range(n_parts):
        hashes, numbers = [], []
        for shard in shards:
            found, number = column(shard)
            mine = found != 0
            if n_parts > 1:
                mine &= found >> np.uint64(64 - n_parts.bit_length() + 1) == np.uint64(part)
            hashes.append(found[mine])
            numbers.append(number[mine])
        joined, numbered = np.concatenate(hashes), np.concatenate(numbers)
        order = np.argsort(joined, kind="stable")  # numbers ascend already, and stay so among equals
        yield joined[order], numbered[order]


def runs(sorted_hashes: Hashes) -> tuple[Indices, Indices]:
    """(start, length) of every run of equal values."""
    if not len(sorted_hashes):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], sorted_hashes[1:] != sorted_hashes[:-1]]))
    return starts, np.diff(np.append(starts, len(sorted_hashes)))
