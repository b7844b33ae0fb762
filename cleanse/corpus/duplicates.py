"""Records that say the same: exact copies, and near copies by MinHash."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cleanse.corpus.repeats import equal_groups, runs
from cleanse.corpus.shards import Shard, Shards
from cleanse.corpus.sketches import N_BANDS, N_PERMUTATIONS

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

SIMILAR = 0.8  # estimated Jaccard similarity of the shingle sets
_CHUNK = 1 << 20  # pairs verified at a time


@dataclass(frozen=True)
class Clusters:
    """Records in clusters of two and more, sorted by cluster, then record.

    A cluster's number is that of its first record, so it does not depend on shards.
    """

    record: Indices
    cluster: Indices  # (records,) first record of the cluster
    size: Indices  # (records,) of its cluster

    def __len__(self) -> int:
        return len(self.record)

    @property
    def later(self) -> Mask:
        """(records,) all but the first of each cluster."""
        return self.record != self.cluster


NONE = Clusters(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def exact(shards: Shards) -> Clusters:
    """Records with the same text and speakers, white space collapsed and in Unicode form NFC."""

    def column(shard: Shard) -> tuple[NDArray[np.uint64], Indices]:
        return shard.arrays["record_exact"][:, 0], np.arange(shard.records.start, shard.records.stop)

    records, clusters, sizes = [], [], []
    for hashes, numbers in equal_groups(shards, shards.n_records, column):
        _, lengths = runs(hashes)
        repeated = np.repeat(lengths > 1, lengths)
        half, record = hashes[repeated], numbers[repeated]
        # The other half of the hash: 128 bits must agree before two records are called the same.
        other = shards.gather(record, "record_exact")[:, 1] if len(record) else half
        order = np.lexsort((record, other, half))
        half, other, record = half[order], other[order], record[order]
        new = np.ones(len(record), np.bool_)
        new[1:] = (half[1:] != half[:-1]) | (other[1:] != other[:-1])
        starts, lengths = runs(np.cumsum(new).astype(np.uint64))
        several = np.repeat(lengths > 1, lengths)
        records.append(record[several])
        clusters.append(np.repeat(record[starts], lengths)[several])
        sizes.append(np.repeat(lengths, lengths)[several])
    return _sorted(np.concatenate(records), np.concatenate(clusters), np.concatenate(sizes))


def near(shards: Shards, copies: Clusters) -> Clusters:
    """Records that are alike but not exact copies; of exact copies only the first takes part.

    Two records that share a band of their MinHash are compared by the whole digest; clusters are what pairs of at
    least SIMILAR connect.
    """
    skipped = np.zeros(shards.n_records, np.bool_)
    skipped[copies.record[copies.later]] = True
    parent = np.arange(shards.n_records, dtype=np.int64)
    for band in range(N_BANDS):

        def column(shard: Shard, band: int = band) -> tuple[NDArray[np.uint64], Indices]:
            hashes = np.where(skipped[shard.records], np.uint64(0), shard.arrays["record_bands"][:, band])
            return hashes, np.arange(shard.records.start, shard.records.stop)

        for hashes, numbers in equal_groups(shards, shards.n_records, column):
            starts, lengths = runs(hashes)
            rank = np.arange(len(numbers)) - np.repeat(starts, lengths)
            later = np.flatnonzero(rank > 0)
            first = np.repeat(starts, lengths)[later]
            _connect(shards, numbers[first], numbers[later], parent)
            further = later[rank[later] > 1]  # also the neighbour: the first may be unlike both
            _connect(shards, numbers[further - 1], numbers[further], parent)
    _flatten(parent)
    roots, counts = np.unique(parent, return_counts=True)
    several = roots[counts > 1]
    member = np.flatnonzero(np.isin(parent, several))
    size = counts[np.searchsorted(roots, parent[member])]
    return _sorted(member, parent[member], size)


def _connect(shards: Shards, first: Indices, second: Indices, parent: Indices) -> None:
    for start in range(0, len(first), _CHUNK):
        a, b = first[start : start + _CHUNK], second[start : start + _CHUNK]
        open_ = parent[a] != parent[b]
        a, b = a[open_], b[open_]
        same = (shards.gather(a, "record_digest") == shards.gather(b, "record_digest")).sum(axis=1)
        alike = same >= SIMILAR * N_PERMUTATIONS
        _union(a[alike], b[alike], parent)


@njit(cache=True, nogil=True)
def _root(k: int, parent: Indices) -> int:
    while parent[k] != k:
        parent[k] = parent[parent[k]]
        k = parent[k]
    return k


@njit(cache=True, nogil=True)
def _union(first: Indices, second: Indices, parent: Indices) -> None:
    for k in range(len(first)):
        a, b = _root(first[k], parent), _root(second[k], parent)
        if a < b:  # the smaller number is the root: the first record names the cluster
            parent[b] = a
        else:
            parent[a] = b


@njit(cache=True, nogil=True)
def _flatten(parent: Indices) -> None:
    for k in range(len(parent)):
        parent[k] = _root(k, parent)


def _sorted(record: Indices, cluster: Indices, size: Indices) -> Clusters:
    order = np.lexsort((record, cluster))
    return Clusters(record[order], cluster[order], size[order])
