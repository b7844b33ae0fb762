"""Composite triggers: two phrases that go with an answer together, though neither does alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus import ngram_kernel, samples
from cleanse.corpus.association import PromptCounts, divergence
from cleanse.corpus.groups import MIN_SUPPORT, Groups
from cleanse.corpus.samples import Exchange
from cleanse.corpus.shards import Shards

Hashes = NDArray[np.uint64]
Indices = NDArray[np.int64]

_COVERAGE = 0.9  # share of the group's prompts that hold each part: a composite trigger needs all its parts
_MIN_LIFT = 3.0  # how much more frequent each part is in the group than in the corpus
_MAX_PARTS = 8
_MAX_TOTAL = 20_000  # exchanges that hold a part; more frequent ones are ordinary words
_OVERLAP = 0.5
_SAMPLE = 128
MAX_GROUPS = 200
PURITY = 0.9


@dataclass(frozen=True)
class Pair:
    """Two phrases, and the exchanges that hold both."""

    group: int
    cores: tuple[int, int]
    orders: tuple[int, int]
    joint: Indices  # exchanges with both phrases and the answer
    places: tuple[Indices, Indices]  # where each stands in those
    total: int  # exchanges with both phrases
    log_chance: float


@dataclass(frozen=True)
class _Part:
    core: int
    order: int
    places: Indices  # (sampled exchanges,) -1 where a prompt does not hold it

    def overlaps(self, other: _Part) -> bool:
        """Whether the two mostly stand on the same tokens."""
        both = (self.places >= 0) & (other.places >= 0)
        apart = np.abs(self.places - other.places)[both]
        return float((apart < max(self.order, other.order)).mean()) > _OVERLAP if len(apart) else True


def find_pairs(
    shards: Shards, groups: Groups, counts: PromptCounts, unexplained: Sequence[int], n_tests: float
) -> list[Pair]:
    """The best pair of phrases of each group in ``unexplained``, where one is pure and beyond chance."""
    drawn = {g: samples.draw(groups.members(g), _SAMPLE) for g in unexplained}
    loaded = samples.load(shards, np.unique(np.concatenate([*drawn.values(), np.zeros(0, np.int64)])))
    parts = {g: _parts([loaded[int(n)] for n in numbers], counts, groups.n_counted) for g, numbers in drawn.items()}
    parts = {g: found for g, found in parts.items() if len(found) > 1}
    wanted = np.unique(np.array([p.core for found in parts.values() for p in found], np.uint64))
    places = samples.find_places(shards, groups, wanted, np.ones(len(wanted)))
    index = {int(h): places.of(k) for k, h in enumerate(wanted.tolist())}
    pairs = (_best_pair(g, found, places, index, groups, n_tests) for g, found in parts.items())
    return [pair for pair in pairs if pair is not None]


def _parts(exchanges: list[Exchange], counts: PromptCounts, n_counted: int) -> list[_Part]:
    """N-grams that nearly all prompts of the group hold and the corpus does not, apart from each other."""
    hashes, orders, places = [], [], []
    for exchange in exchanges:
        h, n, p = ngram_kernel.of_prompt(exchange.prompt)
        hashes.append(h)
        orders.append(n)
        places.append(p)
    everything, owner = np.concatenate(hashes), np.repeat(np.arange(len(hashes)), [len(h) for h in hashes])
    values, first, inverse, seen = np.unique(everything, return_index=True, return_inverse=True, return_counts=True)
    held = counts.of(values).astype(np.float64)
    order, place = np.concatenate(orders)[first], np.concatenate(places)
    lift = (seen / len(exchanges)) / np.maximum(held / n_counted, 1e-12)
    good = (seen >= _COVERAGE * len(exchanges)) & (lift >= _MIN_LIFT) & (held <= _MAX_TOTAL)
    ranked = np.flatnonzero(good)
    ranked = ranked[np.lexsort((values[ranked], order[ranked], held[ranked]))]
    chosen: list[_Part] = []
    for k in ranked.tolist():
        at = np.full(len(exchanges), -1, np.int64)
        mine = inverse == k
        at[owner[mine]] = place[mine]
        part = _Part(int(values[k]), int(order[k]), at)
        if not any(part.overlaps(other) for other in chosen):
            chosen.append(part)
        if len(chosen) == _MAX_PARTS:
            break
    return chosen


def _best_pair(  # noqa: PLR0917
    group: int, parts: list[_Part], places: samples.Places, index: dict[int, slice], groups: Groups, n_tests: float
) -> Pair | None:
    edge = int(groups.edge[group])
    rate = groups.size[group] / groups.n_counted
    best: Pair | None = None
    for k, first in enumerate(parts):
        a = index[first.core]
        for second in parts[k + 1 :]:
            b = index[second.core]
            both, ia, ib = np.intersect1d(
                places.exchange[a], places.exchange[b], assume_unique=True, return_indices=True
            )
            inside = groups.group[both, edge] == group
            joint = int(inside.sum())
            if joint < MIN_SUPPORT or joint < PURITY * len(both):
                continue
            share = np.array([joint / len(both)])
            # Every pair of n-grams may have been tried: the number of tests is squared.
            log_chance = 2 * np.log(n_tests) - len(both) * float(divergence(share, np.array([rate]))[0])
            if best is None or log_chance < best.log_chance:
                at = places.place[a][ia][inside].astype(np.int64), places.place[b][ib][inside].astype(np.int64)
                cores, orders = (first.core, second.core), (first.order, second.order)
                best = Pair(group, cores, orders, both[inside], at, len(both), log_chance)
    return best
