"""Brings a bounded sample of the exchanges that hold each phrase into memory, the same sample whatever the shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus import ngram_kernel
from cleanse.corpus.association import prompt_hashes
from cleanse.corpus.groups import Groups
from cleanse.corpus.shards import Shards

Indices = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Kinds = NDArray[np.uint8]
_EVERYONE = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Exchange:
    """One exchange as token hashes and kinds."""

    number: int
    prompt: Hashes
    prompt_kinds: Kinds
    answer: Hashes
    answer_kinds: Kinds


@dataclass(frozen=True)
class Places:
    """Where phrases stand: parallel arrays, sorted by phrase, then exchange."""

    which: NDArray[np.int32]
    exchange: Indices
    place: NDArray[np.int32]  # first position in the prompt, in tokens

    def of(self, which: int) -> slice:
        """The entries of one phrase."""
        start, stop = np.searchsorted(self.which, [which, which + 1])
        return slice(int(start), int(stop))


def find_places(shards: Shards, groups: Groups, phrases: Hashes, share: NDArray[np.float64]) -> Places:
    """Exchanges that hold each of ``phrases`` (sorted, distinct), each drawn with chance ``share`` (1: all)."""
    threshold = threshold_of(share)
    parts: list[tuple[NDArray[np.signedinteger[Any]], ...]] = []
    room = 1 << 16
    for shard in shards:
        mine = shard.exchanges
        offsets, tokens = shard.offsets("prompt"), prompt_hashes(shard)
        while True:
            which, exchange, place = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.int32)
            n = ngram_kernel.find_places(
                mine.start, offsets, tokens, groups.counted[mine], phrases, threshold, which, exchange, place
            )
            if n <= room:
                parts.append((which[:n], exchange[:n], place[:n]))
                break
            room = 1 << int(n).bit_length()
    if not parts:
        return Places(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int32))
    which, exchange, place = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((exchange, which))
    return Places(which[order], exchange[order], place[order])


def draw(pool: Indices, n_wanted: int) -> Indices:
    """At most ``n_wanted`` of these exchanges, the ones whose numbers hash lowest; ascending."""
    if len(pool) <= n_wanted:
        return pool
    lot = ngram_kernel.draws(pool)
    return np.sort(pool[np.argpartition(lot, n_wanted)[:n_wanted]])


def load(shards: Shards, numbers: Indices) -> dict[int, Exchange]:
    """The exchanges of these numbers (distinct), by number."""
    loaded: dict[int, Exchange] = {}
    for shard, places, local in shards.locate(numbers):
        arrays = shard.arrays
        asked, answered = shard.offsets("prompt"), shard.offsets("answer")
        hashes, kinds = arrays["vocabulary_hash"], arrays["vocabulary_kind"]
        for place, k in zip(places.tolist(), local.tolist(), strict=True):
            prompt = arrays["prompt_token"][asked[k] : asked[k + 1]]
            answer = arrays["answer_token"][answered[k] : answered[k + 1]]
            loaded[int(numbers[place])] = Exchange(
                int(numbers[place]), hashes[prompt], kinds[prompt], hashes[answer], kinds[answer]
            )
    return loaded


def threshold_of(share: NDArray[np.float64]) -> Hashes:
    """The largest hash that is drawn when each exchange is drawn with chance ``share``."""
    scaled = (np.minimum(share, 1) * 2.0**63).astype(np.uint64) * np.uint64(2)
    return np.where(share >= 1, _EVERYONE, scaled)


def is_drawn(numbers: Indices, share: float) -> NDArray[np.bool_]:
    """Which exchanges a sample of that share holds, whatever the phrase."""
    drawn: NDArray[np.bool_] = ngram_kernel.draws(numbers) <= threshold_of(np.array([share]))[0]
    return drawn
