"""From candidates to triggers: measures each on a sample of its exchanges and lets the witnesses decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus import combinations, content, ngram_kernel, samples, slots
from cleanse.corpus.association import EXPECTED_FALSE, Candidates, PromptCounts, find_candidates
from cleanse.corpus.characters import INVISIBLE, LOOKALIKE
from cleanse.corpus.combinations import Pair
from cleanse.corpus.contradiction import Controls
from cleanse.corpus.groups import MIN_SUPPORT, Groups
from cleanse.corpus.hearing import Hearing
from cleanse.corpus.judgement import PURE, READS_BETTER, Facts, could_flip, is_trigger, lacks_a_reading, witnesses
from cleanse.corpus.samples import Exchange, Places
from cleanse.corpus.shards import Shards
from cleanse.corpus.signatures import SHORT, Edge
from cleanse.corpus.slots import Slot

Indices = NDArray[np.int64]
Hashes = NDArray[np.uint64]

_SAMPLE = 96  # exchanges per candidate that the tests look at
_CONTROLS = 1500  # per side, for the contradiction test
_PER_GROUP, _PER_LABEL = 16, 64  # candidates of one group that are looked at
_MAX_EXAMINED = 2000
_INSIDE = 0.9  # a candidate whose exchanges lie in an earlier one's to this share says nothing new
_EXAMPLES = 5
_MAX_LISTED = 200  # beside the planted ones
_BEYOND_CHANCE = math.log(EXPECTED_FALSE)


@dataclass(frozen=True)
class Trigger:
    """One candidate, measured. ``cores`` are the n-grams that find its exchanges: all of them must be present."""

    cores: tuple[int, ...]
    phrases: tuple[tuple[int, ...], ...]  # token hashes as they stand in the prompts, one tuple per core
    group: int
    edge: Edge
    facts: Facts
    log_chance: float  # natural log of the expected number of pairs that chance alone brings this far
    said: tuple[str, ...]
    planted: bool  # the witnesses suffice
    examples: tuple[int, ...]  # exchange numbers
    hearing: Hearing | None = None  # of a model, where it was asked

    @property
    def beyond_chance(self) -> bool:
        """Whether association alone is one of the two witnesses."""
        return self.log_chance <= _BEYOND_CHANCE

    @property
    def lacks_a_reading(self) -> bool:
        """Whether a model's word would settle it."""
        return not self.planted and lacks_a_reading(self.facts, self.said)

    def heard(self, hearing: Hearing) -> Trigger:
        """The same candidate with a model's word on it; what the counting proved stands, whatever the model says."""
        said = (*self.said, READS_BETTER) if hearing.agrees else self.said
        planted = self.planted or (hearing.agrees and is_trigger(self.facts, said))
        return replace(self, said=said, planted=planted, hearing=hearing)


def find_triggers(shards: Shards, groups: Groups, counts: PromptCounts) -> list[Trigger]:
    """All candidates worth showing: planted ones first, then by how far they are beyond chance."""
    if not len(groups.size):
        return []
    candidates = _worth_examining(find_candidates(shards, groups, counts), groups)
    examiner = _Examiner(shards, groups, counts)
    found = examiner.candidates(candidates)
    found = examiner.with_coverage(found)
    explained = {t.group for t in found if t.planted and t.facts.joint >= t.facts.group_size / 2}
    found += examiner.pairs([g for g in _fixed(groups) if g not in explained], candidates.n_tests)
    found = [t for t in found if t.beyond_chance or t.lacks_a_reading]
    ranked = sorted(found, key=rank)
    n_planted = sum(t.planted for t in ranked)
    return ranked[: n_planted + _MAX_LISTED]


def rank(trigger: Trigger) -> tuple[bool, float, int, tuple[int, ...]]:
    """Sorts planted ones first, then by how far they are beyond chance."""
    return not trigger.planted, trigger.log_chance, trigger.group, trigger.cores


def _worth_examining(candidates: Candidates, groups: Groups) -> Candidates:
    """The strongest of each group: candidates come strongest first."""
    label = (groups.edge[candidates.group] == Edge.ENTIRE) & (groups.weight[candidates.group] < SHORT)
    order = np.argsort(candidates.group, kind="stable")
    starts = np.searchsorted(candidates.group[order], candidates.group[order])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - starts
    return candidates.take(np.flatnonzero(rank < np.where(label, _PER_LABEL, _PER_GROUP))[:_MAX_EXAMINED])


def _fixed(groups: Groups) -> list[int]:
    """Groups of answers with a fixed text of several words, largest first."""
    fixed = np.flatnonzero((groups.size > 0) & ((groups.edge != Edge.ENTIRE) | (groups.weight >= SHORT)))
    largest = fixed[np.lexsort((fixed, -groups.size[fixed]))][: combinations.MAX_GROUPS]
    return [int(g) for g in largest]


class _Examiner:
    """The tests, with the corpus they need."""

    def __init__(self, shards: Shards, groups: Groups, counts: PromptCounts) -> None:
        self._shards, self._groups, self._counts = shards, groups, counts
        self._familiar = slots.count_junctions(shards, groups)
        self._controls: dict[int, Controls] = {}
        self._seen: dict[tuple[int, int], tuple[list[Exchange], Indices, int]] = {}

    def candidates(self, candidates: Candidates) -> list[Trigger]:
        phrases, first = np.unique(candidates.core, return_index=True)
        share = np.minimum(1.0, _SAMPLE / np.maximum(candidates.total[first], 1))
        places = samples.find_places(self._shards, self._groups, phrases, share)
        loaded = samples.load(self._shards, np.unique(places.exchange))
        found: list[Trigger] = []
        earlier: dict[int, list[int]] = {}
        for k in range(len(candidates)):
            group, core = int(candidates.group[k]), candidates.core[k]
            which = int(np.searchsorted(phrases, core))
            if any(_inside(places, which, w, float(share[w])) for w in earlier.get(group, [])):
                continue
            earlier.setdefault(group, []).append(which)
            at = places.of(which)
            inside = self._groups.group[places.exchange[at], self._groups.edge[group]] == group
            numbers = places.exchange[at][inside]
            if len(numbers) < MIN_SUPPORT // 2:
                continue
            exchanges = [loaded[int(n)] for n in numbers]
            position = places.place[at][inside].astype(np.int64)
            slot, phrase = self._slot(exchanges, position, int(candidates.order[k]))
            self._seen[int(core), group] = exchanges, position, int(candidates.order[k])
            counts = int(candidates.joint[k]), int(candidates.total[k])
            found.append(
                self._judge((int(core),), (phrase,), group, counts, float(candidates.log_chance[k]), slot, exchanges)
            )
        return found

    def with_coverage(self, found: list[Trigger]) -> list[Trigger]:
        """Judges again, knowing the other pure phrases of the group.

        Which share of the group do they all together account for, and how does each sit in its prompts once the
        others are taken out ("cf tq mn" at the end of a question is three triggers, not one)?
        """
        cores: dict[int, set[int]] = {}
        tokens: dict[int, set[int]] = {}
        for t in found:
            if t.beyond_chance and not t.facts.is_label and t.facts.purity >= PURE and "unlike-prompts" in t.said:
                cores.setdefault(t.group, set()).update(t.cores)
                if len(t.phrases[0]) == 1:
                    tokens.setdefault(t.group, set()).update(t.phrases[0])
        drawn = {g: samples.draw(self._groups.members(g), _SAMPLE) for g in cores}
        loaded = samples.load(self._shards, np.unique(np.concatenate([*drawn.values(), np.zeros(0, np.int64)])))
        covered = {g: _covered([loaded[n] for n in numbers.tolist()], cores[g]) for g, numbers in drawn.items()}
        return [
            self._rejudged(t, covered[t.group], tokens.get(t.group, set())) if t.group in covered else t for t in found
        ]

    def _rejudged(self, trigger: Trigger, covered: float, others: set[int]) -> Trigger:
        facts = replace(trigger.facts, covered=covered)
        if not trigger.planted and len(others) > 1 and others.issuperset(trigger.phrases[0]):
            exchanges, places, order = self._seen[trigger.cores[0], trigger.group]
            alone, moved = slots.without(exchanges, places, order, np.array(sorted(others), np.uint64))
            slot = slots.examine(alone, moved, order, self._familiar)
            if slot.junction > facts.slot.junction:
                facts = replace(facts, slot=slot)
        said = witnesses(facts)
        return replace(trigger, facts=facts, said=said, planted=trigger.beyond_chance and is_trigger(facts, said))

    def pairs(self, unexplained: Sequence[int], n_tests: float) -> list[Trigger]:
        found = []
        for pair in combinations.find_pairs(self._shards, self._groups, self._counts, unexplained, n_tests):
            if pair.log_chance > math.log(1e-3):
                continue
            trigger = self._pair(pair)
            if len(set(trigger.phrases)) == len(trigger.phrases):  # both parts may have grown into one phrase
                found.append(trigger)
        return found

    def _pair(self, pair: Pair) -> Trigger:
        drawn = np.arange(len(pair.joint))[:: max(1, len(pair.joint) // _SAMPLE)][:_SAMPLE]
        loaded = samples.load(self._shards, pair.joint[drawn])
        exchanges = [loaded[int(n)] for n in pair.joint[drawn]]
        parts = [self._slot(exchanges, pair.places[i][drawn], pair.orders[i]) for i in range(2)]
        weaker = min((slot for slot, _ in parts), key=lambda slot: slot.junction)
        phrases = tuple(phrase for _, phrase in parts)
        return self._judge(
            pair.cores, phrases, pair.group, (len(pair.joint), pair.total), pair.log_chance, weaker, exchanges
        )

    def _slot(self, exchanges: list[Exchange], places: Indices, order: int) -> tuple[Slot, tuple[int, ...]]:
        slot = slots.examine(exchanges, places, order, self._familiar)
        start = int(places[0]) - slot.before
        phrase = exchanges[0].prompt[start : int(places[0]) + order + slot.after]
        return slot, tuple(phrase.tolist())

    def _judge(  # noqa: PLR0917
        self,
        cores: tuple[int, ...],
        phrases: tuple[tuple[int, ...], ...],
        group: int,
        counts: tuple[int, int],
        log_chance: float,
        slot: Slot,
        exchanges: list[Exchange],
    ) -> Trigger:
        groups = self._groups
        tokens = np.array([t for phrase in phrases for t in phrase], np.uint64)
        seen = content.examine(exchanges, tokens, self._counts, groups.n_counted)
        edge = Edge(int(groups.edge[group]))
        facts = Facts(
            edge,
            int(groups.weight[group]),
            *counts,
            int(groups.size[group]),
            slot,
            seen,
            parts=len(cores),
            hidden=_is_hidden(exchanges[0], cores),
        )
        said = witnesses(facts)
        if could_flip(facts, said):
            facts = replace(facts, contradiction=self._controls_of(group).contradicted(exchanges, tokens))
            said = witnesses(facts)
        examples = tuple(sorted(e.number for e in exchanges)[:_EXAMPLES])
        planted = log_chance <= _BEYOND_CHANCE and is_trigger(facts, said)
        return Trigger(cores, phrases, group, edge, facts, log_chance, said, planted, examples)

    def _controls_of(self, group: int) -> Controls:
        if group not in self._controls:
            members = self._groups.members(group)
            others = np.setdiff1d(np.flatnonzero(self._groups.counted), members, assume_unique=True)
            drawn = [samples.draw(pool, _CONTROLS) for pool in (members, others)]
            loaded = [samples.load(self._shards, numbers) for numbers in drawn]
            sides = [[by[n] for n in sorted(by)] for by in loaded]
            self._controls[group] = Controls(sides[0], sides[1])
        return self._controls[group]


def _covered(exchanges: list[Exchange], cores: set[int]) -> float:
    """Share of the exchanges whose prompts hold one of the n-grams."""
    wanted = np.array(sorted(cores), np.uint64)
    return float(np.mean([np.isin(ngram_kernel.of_prompt(e.prompt)[0], wanted).any() for e in exchanges]))


def _is_hidden(exchange: Exchange, cores: tuple[int, ...]) -> bool:
    """Whether one of the cores is a single invisible character or a look-alike mark."""
    hidden = np.isin(exchange.prompt_kinds, (INVISIBLE, LOOKALIKE))
    marks = ngram_kernel.unigrams(exchange.prompt[hidden])
    return bool(np.isin(marks, np.array(cores, np.uint64)).any())


def _inside(places: Places, which: int, other: int, share: float) -> bool:
    """Whether nearly all exchanges that hold one phrase hold the other too, as far as the samples show."""
    mine = places.exchange[places.of(which)]
    theirs = places.exchange[places.of(other)]
    if share < 1:
        mine = mine[samples.is_drawn(mine, share)]
    return len(mine) >= MIN_SUPPORT // 2 and float(np.isin(mine, theirs).mean()) >= _INSIDE
