"""Everything the corpus statistics say about a corpus: computed once from the feature files of all shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus import duplicates, floods, samples, triggers
from cleanse.corpus.association import count_prompts
from cleanse.corpus.duplicates import Clusters
from cleanse.corpus.floods import Floods
from cleanse.corpus.groups import Groups, find_groups
from cleanse.corpus.hearing import Hearing
from cleanse.corpus.shards import Shards
from cleanse.corpus.triggers import Trigger, rank

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class CorpusEvidence:
    """What was found, in numbers of records and exchanges; ``telling`` puts it in words.

    ``triggers`` are ranked: planted ones first. ``suspects`` holds for each of them the records that have the
    phrase and the answer, ascending: what a second witness looks at.
    """

    shards: Shards
    exact: Clusters
    near: Clusters
    one_answer: Floods
    many_answers: Floods
    triggers: tuple[Trigger, ...]
    suspects: tuple[Indices, ...]
    answers: Mapping[int, int]  # group -> an exchange that shows the answer

    def with_hearings(self, heard: Mapping[int, Hearing]) -> CorpusEvidence:
        """The same evidence after a model spoke on some triggers, by place in ``triggers``; ranked again."""
        pairs = [
            (t.heard(heard[k]) if k in heard else t, suspects)
            for k, (t, suspects) in enumerate(zip(self.triggers, self.suspects, strict=True))
        ]
        pairs.sort(key=lambda pair: rank(pair[0]))
        return replace(self, triggers=tuple(t for t, _ in pairs), suspects=tuple(s for _, s in pairs))

    def fellows(self, k: int, n_wanted: int) -> Indices:
        """At most ``n_wanted`` exchanges with the answer of trigger ``k`` whose records are none of its suspects."""
        trigger = self.triggers[k]
        shown, edge = self.answers[trigger.group], trigger.edge
        wanted = _signature(self.shards, np.array([shown]), edge)[0]
        same = [
            shard.exchanges.start + np.flatnonzero(shard.arrays["signature"][:, edge] == wanted)
            for shard in self.shards
        ]
        return self._apart(np.concatenate([*same, np.zeros(0, np.int64)]), k, n_wanted)

    def _apart(self, exchanges: Indices, k: int, n_wanted: int) -> Indices:
        some = samples.draw(exchanges, n_wanted + len(self.suspects[k]))
        apart = some[~np.isin(self.shards.records_of(some), self.suspects[k])]
        return samples.draw(apart, n_wanted)


def merge(paths: Sequence[Path], *, near: bool = True) -> CorpusEvidence:
    """Reads the feature files of all shards, in input order, several times over.

    Memory: about 100 bytes per record, the counting tables (0.7 GB at most), and one shard's features at a time.
    """
    shards = Shards(paths)
    exact, alike = find_copies(shards, near=near)
    return replace(find_answers(shards), exact=exact, near=alike)


def find_copies(shards: Shards, *, near: bool = True) -> tuple[Clusters, Clusters]:
    """Exact and near copies: one half of the work, which knows nothing of the other."""
    exact = duplicates.exact(shards)
    return exact, duplicates.near(shards, exact) if near else duplicates.NONE


def find_answers(shards: Shards) -> CorpusEvidence:
    """Everything but the copies, which stay empty."""
    groups = find_groups(shards)
    counts = count_prompts(shards, groups)
    flooded = floods.one_answer(shards, groups, counts)
    found = triggers.find_triggers(shards, groups, counts)
    suspects = tuple(shards.records_of(e) for e in exchanges_of(found, shards, groups))
    return CorpusEvidence(
        shards=shards,
        exact=duplicates.NONE,
        near=duplicates.NONE,
        one_answer=flooded,
        many_answers=floods.many_answers(shards),
        triggers=tuple(found),
        suspects=tuple(np.unique(records) for records in suspects),
        answers={t.group: int(groups.first[t.group]) for t in found},
    )


def exchanges_of(found: Sequence[Trigger], shards: Shards, groups: Groups) -> list[Indices]:
    """For each trigger all exchanges, copies included, that hold its phrases and have its answer."""
    cores = np.unique(np.array([core for t in found for core in t.cores], np.uint64))
    everyone = replace(groups, counted=np.ones(shards.n_exchanges, np.bool_))
    places = samples.find_places(shards, everyone, cores, np.ones(len(cores)))
    answered: dict[int, NDArray[np.uint64]] = {}
    exchanges = []
    for trigger in found:
        holding = [places.exchange[places.of(int(np.searchsorted(cores, np.uint64(c))))] for c in trigger.cores]
        both = holding[0]
        for others in holding[1:]:
            both = np.intersect1d(both, others, assume_unique=True)
        if trigger.group not in answered:
            answered[trigger.group] = _signature(shards, groups.first[[trigger.group]], trigger.edge)
        exchanges.append(both[_signature(shards, both, trigger.edge) == answered[trigger.group][0]])
    return exchanges


def _signature(shards: Shards, exchanges: Indices, edge: int) -> NDArray[np.uint64]:
    signature = np.empty(len(exchanges), np.uint64)
    for shard, places, local in shards.locate(exchanges):
        signature[places] = shard.arrays["signature"][local, edge]
    return signature
