"""One answer over many unlike prompts, and one prompt with many answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus import content, samples
from cleanse.corpus.association import PromptCounts
from cleanse.corpus.groups import Groups
from cleanse.corpus.judgement import ECHOED, OWN_RARE, OWN_SHARE, UNLIKE
from cleanse.corpus.repeats import equal_groups, runs
from cleanse.corpus.shards import Shard, Shards
from cleanse.corpus.signatures import LONG, Edge

Indices = NDArray[np.int64]

MIN_PROMPTS = 20  # prompts with one answer: fewer are chance, greetings, or a stock phrase
MIN_ANSWERS = 3  # answers to one prompt: two may be a choice of wording
_MAX_EXAMINED = 300  # largest groups
_SAMPLE = 64
_NO_PHRASE = np.zeros(0, np.uint64)


@dataclass(frozen=True)
class Floods:
    """Exchanges by cluster, sorted by cluster, then exchange; ``cluster`` is the first exchange."""

    exchange: Indices
    cluster: Indices
    size: Indices


def one_answer(shards: Shards, groups: Groups, counts: PromptCounts) -> Floods:
    """A whole answer of several words given to many prompts that have nothing in common."""
    long = (groups.edge == Edge.ENTIRE) & (groups.weight >= LONG) & (groups.size >= MIN_PROMPTS)
    tried = np.flatnonzero(long)
    tried = tried[np.lexsort((tried, -groups.size[tried]))][:_MAX_EXAMINED]
    drawn = {group: samples.draw(groups.members(group), _SAMPLE) for group in tried.tolist()}
    loaded = samples.load(shards, np.unique(np.concatenate([*drawn.values(), np.zeros(0, np.int64)])))
    parts = []
    for group, numbers in drawn.items():
        seen = content.examine([loaded[n] for n in numbers.tolist()], _NO_PHRASE, counts, groups.n_counted)
        unlike = seen.unlike >= UNLIKE and seen.own_share >= OWN_SHARE and seen.own_rare >= OWN_RARE
        if unlike and seen.copied <= ECHOED:
            parts.append(groups.members(group))
    return _floods(parts)


def many_answers(shards: Shards) -> Floods:
    """Prompts that have at least MIN_ANSWERS different answers."""

    def column(shard: Shard) -> tuple[NDArray[np.uint64], Indices]:
        spoken = shard.arrays["prompt_length"] > 0
        hashes = np.where(spoken, shard.arrays["prompt_hash"], np.uint64(0))
        return hashes, np.arange(shard.exchanges.start, shard.exchanges.stop)

    parts: list[Indices] = []
    for hashes, numbers in equal_groups(shards, shards.n_exchanges, column):
        _, lengths = runs(hashes)
        kept = np.repeat(lengths >= MIN_ANSWERS, lengths)
        prompt, exchange = hashes[kept], numbers[kept]
        answers = np.empty(len(exchange), np.uint64)
        for shard, places, local in shards.locate(exchange):
            answers[places] = shard.arrays["signature"][local, Edge.ENTIRE]
        order = np.lexsort((exchange, answers, prompt))
        new = np.ones(len(order), np.int64)
        new[1:] = (prompt[order][1:] != prompt[order][:-1]) | (answers[order][1:] != answers[order][:-1])
        starts, lengths = runs(prompt)
        different = np.add.reduceat(new, starts) if len(starts) else new
        parts += [exchange[a : a + n] for a, n, d in zip(starts, lengths, different, strict=True) if d >= MIN_ANSWERS]
    return _floods(sorted(parts, key=lambda part: int(part[0])))


def _floods(parts: list[Indices]) -> Floods:
    lengths = [len(part) for part in parts]
    first = [int(part[0]) for part in parts]
    exchange = np.concatenate([*parts, np.zeros(0, np.int64)])
    return Floods(exchange, np.repeat(np.array(first, np.int64), lengths), np.repeat(lengths, lengths).astype(np.int64))
