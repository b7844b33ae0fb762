"""Which phrases of prompts go with which answers: candidates for triggers, with exact counts.

For an n-gram g that D exchanges hold and an answer group of share p of all exchanges, c of the D having that answer:
the chance of c or more under independence is at most exp(-D * KL(c/D || p)) (Chernoff). Multiplied by the number of
(n-gram, group) pairs looked at, that bounds the expected number of pairs that chance alone brings this far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus import ngram_kernel
from cleanse.corpus.groups import MIN_SUPPORT, Groups
from cleanse.corpus.shards import Shard, Shards
from cleanse.corpus.signatures import N_EDGES

Indices = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Floats = NDArray[np.float64]

MIN_PURITY = 0.8
EXPECTED_FALSE = 1e-3  # pairs that chance alone may bring past the test, over the whole scan
EXPECTED_WEAK = 0.1  # the same for pairs that need a model's word besides
_SKETCH_SLACK = 0.9  # hash collisions make an n-gram look more frequent, hence less pure, than it is
_MIN_BITS, _MAX_BITS = 20, 27  # slots of the tables: 2 MB to 256 MB each
_MAX_FOUND = 1 << 23  # pairs held at a time; beyond it the support needed is doubled


@dataclass(frozen=True)
class Candidates:
    """Phrases that go with an answer; phrases that the same exchanges hold are one candidate.

    ``core`` is the shortest of them. All arrays have one entry per candidate; ``log_chance`` is the natural log of
    the expected number of pairs that chance alone brings this far.
    """

    core: Hashes
    order: NDArray[np.uint8]  # tokens of the core
    group: NDArray[np.int32]
    joint: Indices  # exchanges with the phrase and the answer
    total: Indices  # exchanges with the phrase
    log_chance: Floats
    n_tests: float

    def __len__(self) -> int:
        return len(self.core)

    def take(self, chosen: Indices) -> Candidates:
        """The candidates at these places."""
        return Candidates(
            self.core[chosen],
            self.order[chosen],
            self.group[chosen],
            self.joint[chosen],
            self.total[chosen],
            self.log_chance[chosen],
            self.n_tests,
        )


def prompt_hashes(shard: Shard) -> Hashes:
    """The shard's prompt tokens as hashes that mean the same in every shard."""
    hashes: Hashes = shard.arrays["vocabulary_hash"][shard.arrays["prompt_token"]]
    return hashes


def answer_hashes(shard: Shard) -> Hashes:
    """The shard's answer tokens as hashes that mean the same in every shard."""
    hashes: Hashes = shard.arrays["vocabulary_hash"][shard.arrays["answer_token"]]
    return hashes


@dataclass(frozen=True)
class PromptCounts:
    """How many exchanges hold each n-gram: never too low, rarely too high (two n-grams may share a slot)."""

    table: NDArray[np.uint16]
    shift: np.uint64

    def of(self, hashes: Hashes) -> NDArray[np.uint16]:
        """The counts of these n-grams, shape as given."""
        counts: NDArray[np.uint16] = self.table[hashes >> self.shift]
        return counts

    @property
    def n_frequent(self) -> int:
        """Slots that reach the minimum support: about as many n-grams as are looked at."""
        return int((self.table >= MIN_SUPPORT).sum())


def table_bits(n_entries: int) -> int:
    """Two to this power is at least ``n_entries``, within the limits of memory."""
    return int(np.clip(int(n_entries).bit_length(), _MIN_BITS, _MAX_BITS))


def count_prompts(shards: Shards, groups: Groups) -> PromptCounts:
    """Counts all n-grams of all prompts."""
    bits = table_bits(2 * shards.n_prompt_tokens)
    counts = PromptCounts(np.zeros(1 << bits, np.uint16), np.uint64(64 - bits))
    for shard in shards:
        counted = groups.counted[shard.exchanges]
        ngram_kernel.count_ngrams(shard.offsets("prompt"), prompt_hashes(shard), counted, counts.table, counts.shift)
    return counts


def find_candidates(shards: Shards, groups: Groups, counts: PromptCounts) -> Candidates:
    """All phrases whose association with an answer is beyond chance, or nearly, strongest first."""
    n = max(groups.n_counted, 1)
    rate = np.maximum(groups.size, 1) / n
    n_tests = float(max(counts.n_frequent, 1)) * max(int((groups.size > 0).sum()), 1)
    gain = np.log(n_tests / EXPECTED_WEAK)
    floor = MIN_SUPPORT
    pairs, shift = _count_pairs(shards, groups, counts)
    while (found := _find(shards, groups, counts, rate, floor, gain, pairs, shift)) is None:
        floor *= 2
    del pairs
    core, order, group, joint, marks = found
    total = _exact_totals(shards, groups, core)
    share = joint / np.maximum(total, 1)
    log_chance = np.log(n_tests) - total * divergence(share, rate[group])
    # The sketches only ever count too much: the support is asked of the exact count.
    supported = (joint >= MIN_SUPPORT) & (share >= MIN_PURITY)
    kept = np.flatnonzero(supported & (log_chance <= np.log(EXPECTED_WEAK)))
    kept = kept[_one_per_set(group[kept], marks[kept], joint[kept], total[kept], order[kept], core[kept])]
    kept = kept[np.lexsort((core[kept], group[kept], log_chance[kept]))]
    return Candidates(core[kept], order[kept], group[kept], joint[kept], total[kept], log_chance[kept], n_tests)


def divergence(share: Floats, rate: Floats) -> Floats:
    """Kullback-Leibler divergence of two Bernoulli distributions, in nats."""
    inside = share * np.log(np.maximum(share, 1e-300) / rate)
    rest = 1 - share
    return np.asarray(inside + rest * np.log(np.maximum(rest, 1e-300) / (1 - rate)), np.float64)


def _count_pairs(shards: Shards, groups: Groups, counts: PromptCounts) -> tuple[NDArray[np.uint16], np.uint64]:
    bits = table_bits(4 * shards.n_prompt_tokens)
    pairs, shift = np.zeros(1 << bits, np.uint16), np.uint64(64 - bits)
    for shard in shards:
        mine = shard.exchanges
        ngram_kernel.count_pairs(
            shard.offsets("prompt"), prompt_hashes(shard), groups.counted[mine], groups.group[mine],
            MIN_SUPPORT, counts.table, counts.shift, pairs, shift,
        )  # fmt: skip
    return pairs, shift


_Found = tuple[Hashes, NDArray[np.uint8], NDArray[np.int32], Indices, Hashes]


def _find(  # noqa: PLR0917 - one pass with everything it is bounded by
    shards: Shards,
    groups: Groups,
    counts: PromptCounts,
    rate: Floats,
    floor: int,
    gain: float,
    pairs: NDArray[np.uint16],
    pair_shift: np.uint64,
) -> _Found | None:
    """The pairs that may pass, with exact joint counts; None where they are more than can be held."""
    table = _PairTable(1 << 16)
    for shard in shards:
        mine = shard.exchanges
        offsets, tokens = shard.offsets("prompt"), prompt_hashes(shard)
        at = 0
        while True:
            at = ngram_kernel.find_pairs(
                at, mine.start, offsets, tokens, groups.counted[mine], groups.group[mine], rate, floor,
                MIN_PURITY * _SKETCH_SLACK, gain * _SKETCH_SLACK, counts.table, counts.shift, pairs, pair_shift,
                table.arrays, table.n_found,
            )  # fmt: skip
            if at == len(offsets) - 1:
                break
            if table.n_found[0] > _MAX_FOUND:
                return None
            table = table.doubled()
    return table.contents()


class _PairTable:
    """Open-addressing table from (n-gram, group) to a count and the sum of hashes of the exchanges counted."""

    def __init__(self, size: int) -> None:
        self.keys = np.zeros(size, np.uint64)
        self.ngram = np.zeros(size, np.uint64)
        self.owner = np.full(size, -1, np.int32)
        self.order = np.zeros(size, np.uint8)
        self.joint = np.zeros(size, np.int64)
        self.marks = np.zeros(size, np.uint64)
        self.n_found = np.zeros(1, np.int64)

    @property
    def arrays(self) -> ngram_kernel.PairArrays:
        return self.keys, self.ngram, self.owner, self.order, self.joint, self.marks

    def doubled(self) -> _PairTable:
        larger = _PairTable(2 * len(self.keys))
        ngram_kernel.move(self.arrays, larger.arrays)
        larger.n_found[0] = self.n_found[0]
        return larger

    def contents(self) -> _Found:
        used = np.flatnonzero(self.owner >= 0)
        used = used[np.argsort(self.keys[used], kind="stable")]
        return self.ngram[used], self.order[used], self.owner[used], self.joint[used], self.marks[used]


def _exact_totals(shards: Shards, groups: Groups, core: Hashes) -> Indices:
    wanted, place = np.unique(core, return_inverse=True)
    totals = np.zeros(len(wanted), np.int64)
    if len(wanted):
        for shard in shards:
            counted = groups.counted[shard.exchanges]
            ngram_kernel.count_exactly(shard.offsets("prompt"), prompt_hashes(shard), counted, wanted, totals)
    return totals[place]


def _one_per_set(  # noqa: PLR0917 - columns of one table
    group: NDArray[np.int32],
    marks: Hashes,
    joint: Indices,
    total: Indices,
    order: NDArray[np.uint8],
    core: Hashes,
) -> Indices:
    """Of the phrases that the same exchanges hold, the purest and shortest."""
    sequence = np.lexsort((core, order, total, joint, marks, group))
    keys = np.stack([group[sequence].astype(np.uint64), marks[sequence], joint[sequence].astype(np.uint64)])
    first = np.ones(len(sequence), np.bool_)
    first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return np.asarray(sequence[first], np.int64)


__all__ = [
    "EXPECTED_FALSE",
    "EXPECTED_WEAK",
    "MIN_PURITY",
    "N_EDGES",
    "Candidates",
    "PromptCounts",
    "count_prompts",
    "find_candidates",
]
