"""Exchanges with the same answer signature: the groups in which triggers are looked for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus.repeats import equal_groups, runs
from cleanse.corpus.shards import Shard, Shards
from cleanse.corpus.signatures import N_EDGES, Edge

Indices = NDArray[np.int64]
MIN_SUPPORT = 8  # fewer exchanges than this are no pattern; poison of so few records does not take (250 do)
MAX_SHARE = 0.8  # an answer that nearly everything has is the corpus, not a response to a trigger
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Groups:
    """Repeated answers of a corpus.

    ``counted`` marks one exchange of every distinct (prompt, answer): copies would make a pattern of one record.
    ``group`` holds for every exchange and edge the number of the group, -1 where its signature does not repeat.
    Numbers follow edge, then hash, so they do not depend on shards.
    """

    counted: NDArray[np.bool_]  # (exchanges,)
    group: NDArray[np.int32]  # (exchanges, N_EDGES)
    size: Indices  # (groups,) distinct exchanges; 0 where another group has the same members and a longer signature
    edge: NDArray[np.uint8]  # (groups,)
    weight: Indices  # (groups,) of the whole answer for ENTIRE; 0 for the other edges
    first: Indices  # (groups,) first exchange
    _sorted: dict[int, tuple[Indices, NDArray[np.int32]]] = field(default_factory=dict, repr=False, compare=False)

    def members(self, group: int) -> Indices:
        """The counted exchanges of a group, ascending."""
        edge = int(self.edge[group])
        if edge not in self._sorted:
            order = np.argsort(self.group[:, edge], kind="stable")
            self._sorted[edge] = order, self.group[order, edge]
        order, labels = self._sorted[edge]
        start, stop = np.searchsorted(labels, [group, group + 1])
        return order[start:stop]

    @property
    def n_counted(self) -> int:
        """Distinct exchanges: the N of every statistic."""
        return int(self.counted.sum())


def find_groups(shards: Shards, min_support: int = MIN_SUPPORT) -> Groups:
    """Groups of at least ``min_support`` distinct exchanges, and of at most MAX_SHARE of all."""
    counted = _distinct(shards)
    n_counted = int(counted.sum())
    group = np.full((shards.n_exchanges, N_EDGES), -1, np.int32)
    sizes, edges, firsts = [np.zeros(0, np.int64)], [np.zeros(0, np.uint8)], [np.zeros(0, np.int64)]
    n_groups = 0
    for edge in Edge:

        def column(shard: Shard, edge: Edge = edge) -> tuple[NDArray[np.uint64], Indices]:
            mine = np.flatnonzero(counted[shard.exchanges])
            return shard.arrays["signature"][mine, edge], mine + shard.exchanges.start

        for hashes, numbers in equal_groups(shards, n_counted, column):
            starts, lengths = runs(hashes)
            kept = (lengths >= min_support) & (lengths <= MAX_SHARE * n_counted)
            starts, lengths = starts[kept], lengths[kept]
            label = np.repeat(np.arange(n_groups, n_groups + len(starts), dtype=np.int32), lengths)
            members = np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
            group[numbers[members], edge] = label
            sizes.append(lengths)
            edges.append(np.full(len(starts), edge, np.uint8))
            firsts.append(numbers[starts])
            n_groups += len(starts)
    size, edge_of, first = np.concatenate(sizes), np.concatenate(edges), np.concatenate(firsts)
    _drop_redundant(group, size)
    return Groups(counted, group, size, edge_of, _weights(shards, edge_of, first), first)


def _distinct(shards: Shards) -> NDArray[np.bool_]:
    def column(shard: Shard) -> tuple[NDArray[np.uint64], Indices]:
        entire = shard.arrays["signature"][:, Edge.ENTIRE]
        key = (shard.arrays["prompt_hash"] * _MULTIPLIER) ^ entire
        spoken = shard.arrays["prompt_length"] > 0  # without a prompt there is no trigger
        return np.where(spoken, np.maximum(key, 1), 0), np.arange(shard.exchanges.start, shard.exchanges.stop)

    counted = np.zeros(shards.n_exchanges, np.bool_)
    for hashes, numbers in equal_groups(shards, shards.n_exchanges, column):
        counted[numbers[runs(hashes)[0]]] = True
    return counted


def _drop_redundant(group: NDArray[np.int32], size: Indices) -> None:
    """Where a longer signature has exactly the members of a shorter one, only the longer is kept."""
    for longer, shorter in (
        (Edge.FIRST_LONG, Edge.FIRST_SHORT),
        (Edge.LAST_LONG, Edge.LAST_SHORT),
        (Edge.ENTIRE, Edge.FIRST_SHORT),
        (Edge.ENTIRE, Edge.FIRST_LONG),
        (Edge.ENTIRE, Edge.LAST_SHORT),
        (Edge.ENTIRE, Edge.LAST_LONG),
    ):
        padded = np.append(size, -1)  # group -1 has a size that matches no other
        same = (group[:, longer] >= 0) & (padded[group[:, longer]] == padded[group[:, shorter]])
        size[group[same, shorter]] = 0
        group[same, shorter] = -1


def _weights(shards: Shards, edge: NDArray[np.uint8], first: Indices) -> Indices:
    weight = np.zeros(len(first), np.int64)
    entire = np.flatnonzero(edge == Edge.ENTIRE)
    for shard, places, local in shards.locate(first[entire]):
        weight[entire[places]] = shard.arrays["answer_weight"][local]
    return weight
