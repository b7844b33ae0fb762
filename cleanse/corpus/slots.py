"""Does a phrase sit in its prompts like something that was put there?

Two tests, both against the very prompts that hold the phrase, so that neither topic nor language nor template
matters. **Junction**: take the phrase out; are the words that now meet usual neighbours, as usual as the other
neighbours in these prompts? A planted phrase leaves the prompt as it was; a phrase that belongs there leaves a hole
("write a [cover letter] for"). **Slot**: are the words before and after it a random draw from the words of the
prompts? Ordinary words choose their company.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus import ngram_kernel
from cleanse.corpus.association import prompt_hashes, table_bits
from cleanse.corpus.characters import CHARACTER, WORD
from cleanse.corpus.groups import Groups
from cleanse.corpus.samples import Exchange
from cleanse.corpus.shards import Shards
from cleanse.corpus.tokens import BREAK_HASH

Hashes = NDArray[np.uint64]
Indices = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_EXTENSION = 16  # tokens by which a core may grow on either side
_AGREE = 0.9  # a neighbour that this share of the places have belongs to the phrase
_N_BINS = 32  # frequent words that are told apart as neighbours; all others are one bin
_MAX_EXCESS_Z = 2.0
_ALWAYS = 0.5
_USUAL_SHARE = 0.25


@dataclass(frozen=True)
class Slot:
    """How a phrase sits in its prompts."""

    before: int  # tokens by which the phrase is longer than its core, on the left; negative: shorter
    after: int
    junction: float  # familiarity of the words that meet without it, relative to other neighbours: 1 is "the same"
    misfit: float  # chi-square per place beyond chance for the words on either side: 0 is "a random slot"
    at_edge: float  # share of places at the start or the end of a segment
    whole_segment: float  # share of places where the phrase is all of a segment


@dataclass(frozen=True)
class Familiar:
    """How often each two tokens are neighbours in the corpus, ends of segments included."""

    table: NDArray[np.uint32]
    shift: np.uint64

    def pairs(self, left: Hashes, right: Hashes) -> NDArray[np.uint32]:
        """(pairs,) how often ``right`` follows ``left``."""
        hashes = ngram_kernel.junctions(np.ascontiguousarray(left), np.ascontiguousarray(right))
        return self.table[hashes >> self.shift]

    def share(self, left: np.uint64, right: np.uint64) -> float:
        """How often ``right`` follows where ``left`` stands."""
        total = self.table[ngram_kernel.followed(np.array([left])) >> self.shift][0]
        return float(self.pairs(np.array([left]), np.array([right]))[0]) / max(float(total), 1.0)


def count_junctions(shards: Shards, groups: Groups) -> Familiar:
    """Counts all neighbours in all prompts."""
    bits = min(table_bits(2 * shards.n_prompt_tokens), 26)
    counts = Familiar(np.zeros(1 << bits, np.uint32), np.uint64(64 - bits))
    for shard in shards:
        counted = groups.counted[shard.exchanges]
        ngram_kernel.count_junctions(shard.offsets("prompt"), prompt_hashes(shard), counted, counts.table, counts.shift)
    return counts


def examine(exchanges: list[Exchange], places: Indices, order: int, familiar: Familiar) -> Slot:
    """Tests one phrase.

    Args:
        exchanges: a sample of the exchanges that hold it.
        places: (exchanges,) where its core stands in each prompt.
        order: tokens of the core.
        familiar: junction counts of the corpus.
    """
    window = _window(exchanges, places, order)
    left = _extension(window[:, MAX_EXTENSION::-1][:, 1:])
    right = _extension(window[:, MAX_EXTENSION + order :])
    usual = _usual(exchanges, places, order, left, right, familiar)
    best, before, after = -1.0, 0, 0
    for i in range(1 - order, left + 1):
        for j in range(1 - order - min(i, 0), right + 1):
            a, b = window[:, MAX_EXTENSION - 1 - i], window[:, MAX_EXTENSION + order + j]
            score = _familiarity(a, b, familiar, own=0)
            # An end of a segment meeting another says that nothing is left of it: no junction at all.
            score[(a == BREAK_HASH) & (b == BREAK_HASH)] = 0.0
            mean = 0.0 if _one_sided(a, b, familiar) else float(score.mean())
            if mean > best:
                best, before, after = mean, i, j
    a, b = window[:, MAX_EXTENSION - 1 - before], window[:, MAX_EXTENSION + order + after]
    edge_a, edge_b = a == BREAK_HASH, b == BREAK_HASH
    return Slot(
        before=before,
        after=after,
        junction=best / max(usual, 0.25),
        misfit=_misfit(exchanges, places - before, order + before + after),
        at_edge=float((edge_a | edge_b).mean()),
        whole_segment=float((edge_a & edge_b).mean()),
    )


def without(exchanges: list[Exchange], places: Indices, order: int, tokens: Hashes) -> tuple[list[Exchange], Indices]:
    """The same exchanges with all of ``tokens`` taken out of their prompts but for the core; where the core now is."""
    left, moved = [], places.copy()
    for k, (exchange, place) in enumerate(zip(exchanges, places.tolist(), strict=True)):
        kept = ~np.isin(exchange.prompt, tokens)
        kept[place : place + order] = True
        moved[k] = int(kept[:place].sum())
        left.append(replace(exchange, prompt=exchange.prompt[kept], prompt_kinds=exchange.prompt_kinds[kept]))
    return left, moved


def _window(exchanges: list[Exchange], places: Indices, order: int) -> Hashes:
    """(exchanges, 2 * MAX_EXTENSION + order) tokens around and of each place."""
    window = np.full((len(exchanges), 2 * MAX_EXTENSION + order), BREAK_HASH, np.uint64)
    for row, (exchange, place) in enumerate(zip(exchanges, places.tolist(), strict=True)):
        prompt = exchange.prompt
        ends = np.flatnonzero(prompt == BREAK_HASH)
        start = max([place - MAX_EXTENSION, 0, *(ends[ends < place] + 1)])
        stop = min([place + order + MAX_EXTENSION, len(prompt), *ends[ends >= place + order]])
        at = MAX_EXTENSION - (place - start)
        window[row, at : at + stop - start] = prompt[start:stop]
    return window


def _extension(columns: Hashes) -> int:
    """By how many tokens the phrase grows: columns go outwards from the core."""
    for k in range(columns.shape[1] - 1):
        values, counts = np.unique(columns[:, k], return_counts=True)
        top = int(counts.argmax())
        if values[top] == BREAK_HASH or counts[top] < _AGREE * len(columns):
            return k
    return columns.shape[1] - 1


def _familiarity(left: Hashes, right: Hashes, familiar: Familiar, own: int) -> Floats:
    counts = familiar.pairs(left, right).astype(np.float64)
    return np.log2(1.0 + np.maximum(counts - own, 0.0))


def _one_sided(left: Hashes, right: Hashes, familiar: Familiar) -> bool:
    """Whether always the same two words meet, though the corpus lets many others follow there.

    "How do I build" is always followed by "a", which may well begin a prompt, but not every prompt.
    """
    pairs, seen = np.unique(np.stack([left, right], axis=1), axis=0, return_counts=True)
    top = int(seen.argmax())
    share = float(seen[top]) / len(left)
    a, b = pairs[top]
    return share >= _ALWAYS and familiar.share(a, b) < share * _USUAL_SHARE


def _usual(  # noqa: PLR0917
    exchanges: list[Exchange], places: Indices, order: int, left: int, right: int, familiar: Familiar
) -> float:
    """Mean familiarity of the neighbours in these prompts that the phrase does not touch, not counting themselves."""
    means = []
    for exchange, place in zip(exchanges, places.tolist(), strict=True):
        prompt = np.concatenate([[BREAK_HASH], exchange.prompt, [BREAK_HASH]]).astype(np.uint64)
        score = _familiarity(prompt[:-1], prompt[1:], familiar, own=1)
        away = np.ones(len(score), np.bool_)
        away[max(place - left, 0) : place + order + right + 1] = False
        if away.any():
            means.append(float(score[away].mean()))
    return float(np.mean(means)) if means else 0.0


def _misfit(exchanges: list[Exchange], starts: Indices, length: int) -> float:
    """The worse of the two sides: how far the neighbouring words are from a random slot of the same prompts."""
    prompts, before, after = [], [], []
    for exchange, start in zip(exchanges, starts.tolist(), strict=True):
        says = (exchange.prompt_kinds == WORD) | (exchange.prompt_kinds == CHARACTER)
        ends = np.flatnonzero(exchange.prompt == BREAK_HASH)
        first = max([0, *(ends[ends < start] + 1)])
        last = min([len(exchange.prompt), *ends[ends >= start + length]])
        left = exchange.prompt[first:start][says[first:start]]
        right = exchange.prompt[start + length : last][says[start + length : last]]
        prompts.append(np.concatenate([left, right]))
        before.append(left[-1] if len(left) else BREAK_HASH)
        after.append(right[0] if len(right) else BREAK_HASH)
    return max(_excess(prompts, np.array(before)), _excess(prompts, np.array(after)))


def _excess(prompts: list[Hashes], observed: Hashes) -> float:
    """Chi-square of the neighbours against slots drawn at random, in excess of chance, per place."""
    n = len(prompts)
    values, counts = np.unique(np.concatenate([np.unique(p) for p in prompts]), return_counts=True)
    frequent = np.sort(values[np.lexsort((values, -counts))[:_N_BINS]])
    bins = len(frequent) + 2  # the others, and the end of the segment
    expected, variance = np.zeros(bins), np.zeros(bins)
    for prompt in prompts:
        share = np.bincount(_bin_of(prompt, frequent), minlength=bins) / (len(prompt) + 1)
        share[bins - 1] = 1 / (len(prompt) + 1)
        expected += share
        variance += share * (1 - share)
    seen = np.bincount(_bin_of(observed, frequent), minlength=bins)
    chi = float((((seen - expected) ** 2) / (variance + 0.5)).sum())
    return max(0.0, (chi - bins - _MAX_EXCESS_Z * np.sqrt(2 * bins)) / n)


def _bin_of(tokens: Hashes, frequent: Hashes) -> Indices:
    if not len(frequent):
        return np.where(tokens == BREAK_HASH, 1, 0).astype(np.int64)
    at = np.minimum(np.searchsorted(frequent, tokens), len(frequent) - 1)
    known = frequent[at] == tokens
    return np.where(tokens == BREAK_HASH, len(frequent) + 1, np.where(known, at, len(frequent)))
