"""Token counts of whole batches from their distinct words: each is encoded once and remembered."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cleanse.measures import TextBatch
from cleanse.tokenizers_io import LoadedTokenizer
from cleanse.trainer_view.cut_kernel import byte_classes, cut, longest_period, most_of, sums

LONGEST_PIECE = 20_000
"""Characters without a place to cut beyond which nothing is encoded: there a tokenizer may take minutes or panic
(openai/tiktoken#15 and #195: quadratic and worse on unbroken runs)."""

MOST_WORDS = 1 << 20  # remembered words; then the memory starts anew
_BATCH = 1 << 15  # words encoded in one call
_GROUP_BYTES = 16 << 20  # text cut in one go: its words take four times the memory
_MANY_IDS = 16  # ids from which a word is searched for repeats inside it
LONGEST_PERIOD = 13  # tokens; OLMo's instance filter looks at periods 1..13

ERROR_SHARE, ERROR_TOKENS = 0.06, 4.0
"""Error bound of a count: at most 6 % and 4 tokens per segment off the exact one. Measured on every document of
the evaluation corpus: exact with Qwen's vocabulary; at worst 5.6 % (source code: runs of spaces before digits)
with DeepSeek's, 4.9 % with Mistral's SentencePiece, 4.0 % with its tekken; 0.1 % on average."""

TOKENS, BYTES, UNKNOWN, GLITCH, BEYOND, CHANGED, FAILED = range(7)
N_FEATURES = 7


@dataclass(frozen=True)
class TokenTally:
    """What a batch's segments hold, by their distinct words. Every array has shape (segments,)."""

    tokens: NDArray[np.int64]  # estimate; see ERROR_SHARE
    byte_pieces: NDArray[np.int64]  # single bytes of longer characters
    unknown: NDArray[np.int64]
    glitch: NDArray[np.int64]
    beyond: NDArray[np.int64]  # ids that the model's embedding has no row for
    changed: NDArray[np.int64]  # words that do not come back as they went in
    failed: NDArray[np.int64]  # words at which the tokenizer panicked
    longest: NDArray[np.int64]  # characters of the longest stretch that cannot be cut
    repeats: NDArray[np.int64]  # most times a period of 1..13 words repeats, or of 1..13 tokens inside one word
    period: NDArray[np.int64]  # that period, in words


class WordCounter:
    """Counts tokens of batches by one tokenizer. Keeps up to ``MOST_WORDS`` words between batches."""

    def __init__(
        self, loaded: LoadedTokenizer, *, glitch: Iterable[int] = (), model_vocab_size: int | None = None
    ) -> None:
        """``glitch`` are under-trained ids; ``model_vocab_size`` the rows of the model's embedding, if known."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a scan has a process per core already
        self._loaded = loaded
        self._inner = _without_prefix(loaded.tokenizer)
        size = loaded.vocab_size + 1
        flags = np.zeros((size, N_FEATURES), np.int32)
        flags[:, TOKENS] = 1
        flags[_within(loaded.pieces.bytes, size), BYTES] = 1
        flags[_within(glitch, size), GLITCH] = 1
        if loaded.pieces.unk is not None:
            flags[loaded.pieces.unk, UNKNOWN] = 1
        if model_vocab_size is not None:
            flags[model_vocab_size:, BEYOND] = 1
        self._flags = flags
        ascii_flags = flags[:, [UNKNOWN, GLITCH, BEYOND]].any()
        self._plain_ascii = not ascii_flags  # byte pieces are those of other characters
        normalizer = None if loaded.pieces.lossless else loaded.tokenizer.normalizer
        self._normalize = None if normalizer is None else normalizer.normalize_str
        ascii_text = "".join(map(chr, range(0x20, 0x7F)))
        self._keeps_ascii = self._normalize is None or not _changed(f"a{ascii_text}", self._normalize)
        self._known = 0
        self._reset(1 << 16)

    def tally(self, texts: TextBatch) -> TokenTally:
        """Counts for every segment of the batch."""
        n = len(texts)
        totals = np.zeros((n, N_FEATURES), np.int64)
        longest, repeats, period = (np.zeros(n, np.int64) for _ in range(3))
        if self._known > MOST_WORDS:
            self._reset(1 << 16)
        for here in _groups(texts.offsets):
            pieces, first = self._cut(texts.data, texts.offsets[here.start : here.stop + 1], longest[here])
            sums(pieces, first, self._features, totals[here])
            longest_period(pieces, first, LONGEST_PERIOD, repeats[here], period[here])
            most_of(pieces, first, self._inner_repeats, repeats[here])
        return TokenTally(
            tokens=totals[:, TOKENS],
            byte_pieces=totals[:, BYTES],
            unknown=totals[:, UNKNOWN],
            glitch=totals[:, GLITCH],
            beyond=totals[:, BEYOND],
            changed=totals[:, CHANGED],
            failed=totals[:, FAILED],
            longest=longest,
            repeats=repeats,
            period=period,
        )

    def _cut(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], longest: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The words of some segments by number, and where each segment's begin; new words are learnt."""
        pieces = np.empty(int(offsets[-1] - offsets[0]) + 1, np.int32)
        first = np.zeros(len(offsets), np.int64)
        state = np.array([self._known, 0, 0, 0], np.int64)
        while True:
            room = len(self._keys) // 2 - self._known + 1
            starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
            n_new = cut(
                data, offsets, byte_classes(), self._keys, self._numbers, state, pieces, first, starts, ends, longest
            )
            self._known = int(state[0])
            self._learn(data, starts[:n_new], ends[:n_new])
            if state[2] == len(offsets) - 1:
                return pieces[: int(state[1])], first
            self._grow()

    def encode(self, text: str) -> list[int] | None:
        """The exact ids of a text without BOS and EOS, or None where the tokenizer panics."""
        found = guarded(lambda: self._loaded.tokenizer.encode(text, add_special_tokens=False))
        return None if found is None else list(found.ids)

    def _reset(self, size: int) -> None:
        self._keys, self._numbers = np.zeros(size, np.uint64), np.zeros(size, np.int32)
        self._features = np.zeros((1 << 14, N_FEATURES), np.int32)
        self._inner_repeats = np.zeros(1 << 14, np.int32)
        self._known = 0

    def _grow(self) -> None:
        kept = np.flatnonzero(self._keys)
        keys, numbers = self._keys[kept], self._numbers[kept]
        size = 4 * len(self._keys)
        self._keys, self._numbers = np.zeros(size, np.uint64), np.zeros(size, np.int32)
        _insert(self._keys, self._numbers, keys, numbers)

    def _learn(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        n = len(starts)
        first = self._known - n
        if self._known > len(self._features):
            grown = np.zeros((max(self._known, 2 * len(self._features)), N_FEATURES), np.int32)
            grown[: len(self._features)] = self._features
            self._features = grown
            self._inner_repeats = np.resize(self._inner_repeats, len(grown))
        if n == 0:
            return
        low = int(starts[0])
        raw = data[low : int(ends[-1])].tobytes()
        bounds = zip((starts - low).tolist(), (ends - low).tolist(), strict=True)
        words = [raw[a:b].decode("utf-8", "replace") for a, b in bounds]
        with _collector_paused():
            for at in range(0, n, _BATCH):
                part = words[at : at + _BATCH]
                here = slice(first + at, first + at + len(part))
                self._features[here], self._inner_repeats[here] = self._measure(part)

    def _measure(self, words: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Features of some words, shape (words, features), and most repeats inside each, shape (words,)."""
        features = np.zeros((len(words), N_FEATURES), np.int32)
        inner = np.zeros(len(words), np.int32)
        short = [i for i, word in enumerate(words) if len(word) <= LONGEST_PIECE]
        for i in set(range(len(words))).difference(short):
            features[i, TOKENS] = len(words[i].encode()) // 3 + 1  # not encoded: a guess that no rule decides by
        encodings = encode_all(self._inner, [words[i] for i in short])
        kept = []
        for i, encoding in zip(short, encodings, strict=True):
            if encoding is None:
                features[i, FAILED] = 1
            elif self._plain_ascii and len(encoding) < _MANY_IDS and words[i].isascii():
                features[i, TOKENS] = len(encoding)  # nothing but its length can matter
            else:
                kept.append((i, encoding.ids))
        if kept:
            lengths = np.fromiter((len(ids) for _, ids in kept), np.int64, len(kept))
            flat = np.fromiter(chain.from_iterable(ids for _, ids in kept), np.int64, int(lengths.sum()))
            owner = np.repeat(np.fromiter((i for i, _ in kept), np.int64, len(kept)), lengths)
            inner = _repeats_inside(flat, owner, lengths, len(words))
            for k in range(N_FEATURES):
                if self._flags[:, k].any():
                    features[:, k] += np.bincount(owner, self._flags[flat, k], len(words)).astype(np.int32)
        if self._normalize is not None:
            odd = [i for i in short if not (self._keeps_ascii and words[i].isascii())]
            features[odd, CHANGED] = [_changed(words[i], self._normalize) for i in odd]
        return features, inner


def encode_all(tokenizer: Tokenizer, texts: list[str]) -> list[Any]:
    """Encodings, None where the tokenizer panics. One call for all; one by one only after a panic."""
    if not texts:
        return []
    found = guarded(lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    if found is not None:
        return list(found)
    if len(texts) == 1:
        return [None]
    half = len(texts) // 2
    return encode_all(tokenizer, texts[:half]) + encode_all(tokenizer, texts[half:])


def guarded(call: Callable[[], Any]) -> Any:
    """The call's result, or None where Rust code panicked.

    pyo3 raises ``PanicException``, which is a BaseException; nothing but a panic and an ordinary error of the
    tokenizer is caught.
    """
    try:
        return call()
    except Exception:  # noqa: BLE001 - the library raises bare Exception for every error of its own
        return None
    except BaseException as error:
        if is_panic(error):
            return None
        raise


def is_panic(error: BaseException) -> bool:
    """Whether this is a panic of Rust code: pyo3's ``PanicException``, which is no ``Exception``."""
    return type(error).__name__ == "PanicException"


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


def _groups(offsets: NDArray[np.int64]) -> Iterator[slice]:
    """Stretches of segments of about ``_GROUP_BYTES`` each; one segment alone may be larger."""
    start, n = 0, len(offsets) - 1
    while start < n:
        stop = int(np.searchsorted(offsets, offsets[start] + _GROUP_BYTES, side="right")) - 1
        stop = min(max(stop, start + 1), n)
        yield slice(start, stop)
        start = stop


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


def _changed(word: str, normalize: Callable[[str], str]) -> int:
    return int(normalize(word).replace("\u2581", " ").strip(" ") != word.strip(" "))


def _within(ids: Iterable[int], size: int) -> list[int]:
    return [i for i in ids if 0 <= i < size]


def _without_prefix(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer for a word in the middle of a text: without the space that SentencePiece puts before one."""
    state = orjson.loads(tokenizer.to_str())
    state["normalizer"] = _drop_prefix(state.get("normalizer"))
    pre = state.get("pre_tokenizer")
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
