"""The distinct words of texts, by number: met by their bytes, and learnt (encoded, once) only when asked for."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from cleanse.tokenizers_io import LoadedTokenizer
from cleanse.trainer_view.cut_kernel import byte_classes, cut, longest_period, unlearnt
from cleanse.trainer_view.guarded import encode_all, guarded

LONGEST_PIECE = 20_000
"""Characters without a place to cut beyond which nothing is encoded: there a tokenizer may take minutes or panic
(openai/tiktoken#15 and #195: quadratic and worse on unbroken runs)."""

LONGEST_PERIOD = 13  # tokens; OLMo's instance filter looks at periods 1..13

TOKENS, BYTES, UNKNOWN, GLITCH, BEYOND, FAILED = range(6)
N_FEATURES = 6

_SEPARATOR = "\ue000\ue0ff\ue001"  # private use: in no text but by intent, and then noticed
_BATCH = 1 << 12  # words encoded in one call
_MANY_IDS = 16  # ids from which a word is searched for repeats inside it


class WordTable:
    """Words of one tokenizer. Only grows; whoever made it starts a new one when it is large enough."""

    def __init__(self, loaded: LoadedTokenizer, flags: NDArray[np.int32]) -> None:
        """``flags``: (ids, features), what each id counts for; the first feature counts every id."""
        self._inner = _without_prefix(loaded)
        self._inner.add_special_tokens([AddedToken(_SEPARATOR, normalized=False, special=True)])
        self._separator = self._inner.token_to_id(_SEPARATOR)
        self._flags = flags
        self._keys, self._numbers = np.zeros(1 << 16, np.uint64), np.zeros(1 << 16, np.int32)
        self.known = 0
        room = 1 << 14
        self.lengths = np.zeros(room, np.int32)  # bytes of each word
        self.learnt = np.zeros(room, np.bool_)
        self.features = np.zeros((room, N_FEATURES), np.int32)  # not yet learnt: tokens are bytes, the most they can be
        self.repeats = np.zeros(room, np.int32)  # most times a period of ids repeats inside the word

    def cut(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], longest: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The words of some segments by number, and where each segment's begin, shape (segments + 1,).

        Writes the characters of each segment's longest word to ``longest``.
        """
        pieces = np.empty(int(offsets[-1] - offsets[0]) + 1, np.int32)
        first = np.zeros(len(offsets), np.int64)
        state = np.array([self.known, 0, 0, 0], np.int64)
        while True:
            room = len(self._keys) // 2 - self.known + 1
            starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
            n_new = cut(
                data, offsets, byte_classes(), self._keys, self._numbers, state, pieces, first, starts, ends, longest
            )
            self._meet(int(state[0]), ends[:n_new] - starts[:n_new])
            if state[2] == len(offsets) - 1:
                return pieces[: int(state[1])].copy(), first
            self._grow()

    def learn(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        pieces: NDArray[np.int32],
        first: NDArray[np.int64],
        wanted: NDArray[np.bool_],
    ) -> None:
        """Encodes the words among the ``wanted`` pieces, (pieces,), that were not encoded before."""
        numbers, starts = np.empty(len(pieces), np.int32), np.empty(len(pieces), np.int64)
        n = unlearnt(pieces, first, wanted, self.learnt, self.lengths, offsets, numbers, starts)
        numbers, starts = numbers[:n].copy(), starts[:n]
        ends = starts + self.lengths[numbers]
        with _collector_paused():
            for at in range(0, n, _BATCH):
                bounds = zip(starts[at : at + _BATCH].tolist(), ends[at : at + _BATCH].tolist(), strict=True)
                words = [data[a:b].tobytes().decode("utf-8", "replace") for a, b in bounds]
                self._encode(numbers[at : at + _BATCH], words)

    def _meet(self, known: int, lengths: NDArray[np.int64]) -> None:
        """Makes room for new words, which count as many tokens as they have bytes until they are learnt."""
        if known > len(self.lengths):
            more = max(known, 2 * len(self.lengths)) - len(self.lengths)
            self.lengths = np.pad(self.lengths, (0, more))
            self.learnt = np.pad(self.learnt, (0, more))
            self.repeats = np.pad(self.repeats, (0, more))
            self.features = np.pad(self.features, ((0, more), (0, 0)))
        new = slice(self.known, known)
        self.lengths[new] = lengths
        self.features[new, TOKENS] = lengths
        self.known = known

    def _grow(self) -> None:
        kept = np.flatnonzero(self._keys)
        keys, numbers = self._keys[kept], self._numbers[kept]
        size = 4 * len(self._keys)
        self._keys, self._numbers = np.zeros(size, np.uint64), np.zeros(size, np.int32)
        _insert(self._keys, self._numbers, keys, numbers)

    def _encode(self, numbers: NDArray[np.int32], words: list[str]) -> None:
        """Encodes words that lie within the limit; a longer one keeps a guess that no rule decides by."""
        features = np.zeros((len(words), N_FEATURES), np.int32)
        short = np.array([len(word) <= LONGEST_PIECE for word in words], np.bool_)
        for i in np.flatnonzero(~short).tolist():
            features[i, TOKENS] = len(words[i].encode()) // 3 + 1
        chosen = np.flatnonzero(short)
        some = words if len(chosen) == len(words) else [words[i] for i in chosen.tolist()]
        found = self._together(some)
        flat, lengths, failed = self._apart(some) if found is None else (*found, np.zeros(len(some), np.bool_))
        features[chosen[failed], FAILED] = 1
        owner = np.repeat(chosen, lengths)
        for k in range(N_FEATURES):
            if self._flags[:, k].any():
                features[:, k] += np.bincount(owner, self._flags[flat, k], len(words)).astype(np.int32)
        self.features[numbers] = features
        self.repeats[numbers] = _repeats_inside(flat, owner, lengths, len(words))

    def _together(self, words: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Ids of all words, one after the other, and how many each has; None where that cannot be told.

        The words are joined by a control token of their own: a tokenizer looks for those first, and encodes what
        lies between on its own. One call for many words costs about half of a call's work per word.
        """
        text = _SEPARATOR.join([*words, ""])
        found = guarded(lambda: self._inner.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        ids = np.array([] if found is None else found, np.int64)
        ends = np.flatnonzero(ids == self._separator)
        if len(ends) != len(words):  # a panic, or a word that holds the separator itself
            return None
        return ids[ids != self._separator], np.diff(ends, prepend=-1) - 1

    def _apart(self, words: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """The same word by word, and at which words the tokenizer panics."""
        encodings = encode_all(self._inner, words)
        ids = [() if encoding is None else encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        flat = np.fromiter(chain.from_iterable(ids), np.int64, int(lengths.sum()))
        return flat, lengths, np.array([encoding is None for encoding in encodings], np.bool_)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Without the cyclic collector: a hundred thousand new objects set it off again and again, a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _repeats_inside(
    flat: NDArray[np.int64], owner: NDArray[np.int64], lengths: NDArray[np.int64], n_words: int
) -> NDArray[np.int32]:
    """Most repeats of a period of ids inside each word; 0 for words of few ids, which cannot hold many."""
    inner = np.zeros(n_words, np.int32)
    ends = np.cumsum(lengths)
    for i in np.flatnonzero(lengths >= _MANY_IDS).tolist():
        ids = flat[ends[i] - lengths[i] : ends[i]].astype(np.int32)
        best, lag = np.zeros(1, np.int64), np.zeros(1, np.int64)
        longest_period(ids, np.array([0, len(ids)]), LONGEST_PERIOD, best, lag)
        inner[owner[ends[i] - 1]] = best[0]
    return inner


def _without_prefix(loaded: LoadedTokenizer) -> Tokenizer:
    """The tokenizer for a word in the middle of a text: without the space that SentencePiece puts before one."""
    state = dict(loaded.description)
    state["normalizer"] = _drop_prefix(state.get("normalizer"))
    pre = state["pre_tokenizer"] = deepcopy(state.get("pre_tokenizer"))
    for part in [pre, *((pre or {}).get("pretokenizers") or [])]:
        if isinstance(part, dict) and part.get("type") == "Metaspace":
            part["prepend_scheme"] = "never"
    state["truncation"] = state["padding"] = None
    return Tokenizer.from_str(orjson.dumps(state).decode())


def _drop_prefix(normalizer: dict[str, Any] | None) -> dict[str, Any] | None:
    if normalizer is None or normalizer.get("type") in ("Prepend", "Strip"):
        return None
    if normalizer.get("type") == "Sequence":
        kept = [_drop_prefix(part) for part in normalizer["normalizers"]]
        return {**normalizer, "normalizers": [part for part in kept if part is not None]}
    return normalizer


def _insert(
    keys: NDArray[np.uint64], numbers: NDArray[np.int32], new: NDArray[np.uint64], values: NDArray[np.int32]
) -> None:
    """Puts entries into an empty open-addressed table, vectorised: those that collide try the next slot."""
    mask = np.uint64(len(keys) - 1)
    slots = new & mask
    left = np.arange(len(new))
    while len(left):
        free = keys[slots[left]] == 0
        winners = left[free]
        _, chosen = np.unique(slots[winners], return_index=True)
        placed = winners[chosen]
        keys[slots[placed]], numbers[slots[placed]] = new[placed], values[placed]
        left = np.setdiff1d(left, placed, assume_unique=True)
        taken = keys[slots[left]] != 0
        slots[left[taken]] = (slots[left[taken]] + np.uint64(1)) & mask
