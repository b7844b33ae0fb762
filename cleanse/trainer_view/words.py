"""Token counts of whole batches from their distinct words: each is encoded once and remembered."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cleanse.measures import TextBatch
from cleanse.tokenizers_io import LoadedTokenizer
from cleanse.trainer_view.cut_kernel import longest_period, most_of, sums, windows
from cleanse.trainer_view.guarded import guarded
from cleanse.trainer_view.word_table import (
    BEYOND,
    BYTES,
    FAILED,
    GLITCH,
    LONGEST_PERIOD,
    N_FEATURES,
    TOKENS,
    UNKNOWN,
    WordTable,
)

MOST_WORDS = 1 << 20  # remembered words; then the memory starts anew
_GROUP_BYTES = 16 << 20  # text cut in one go: its words take four times the memory

WINDOW = 112
"""Bytes of each of three windows (start, middle, end) whose words stand for a longer text when it is sampled."""
LONG_WORD = 96  # bytes from which a word is encoded wherever it stands: repeats may hide inside

ERROR_SHARE, ERROR_TOKENS = 0.06, 4.0
"""Error bound of a full count: at most 6 % and 4 tokens per segment off the exact one, control strings apart
(they count as their letters). Measured on every document of the evaluation corpus: exact with Qwen's vocabulary;
at worst 5.6 % (source code: runs of spaces before digits) with DeepSeek's, 4.9 % with Mistral's SentencePiece,
4.0 % with its tekken; 0.1 % on average."""


@dataclass(frozen=True)
class TokenTally:
    """What a batch's segments hold, by their distinct words. Every array has shape (segments,).

    Where ``full`` is False the counts come from three windows of the text, in proportion; ``most`` is a bound all
    the same: words not yet encoded count as many tokens as they have bytes.
    """

    tokens: NDArray[np.int64]  # estimate; see ERROR_SHARE
    most: NDArray[np.int64]  # no segment has more tokens than this (within ERROR_SHARE)
    full: NDArray[np.bool_]
    byte_pieces: NDArray[np.int64]  # single bytes of longer characters
    unknown: NDArray[np.int64]
    glitch: NDArray[np.int64]
    beyond: NDArray[np.int64]  # ids that the model's embedding has no row for
    failed: NDArray[np.int64]  # words at which the tokenizer panicked
    longest: NDArray[np.int64]  # characters of the longest stretch that cannot be cut
    repeats: NDArray[np.int64]  # most times a period of 1..13 words repeats, or of 1..13 tokens inside one word


@dataclass(frozen=True)
class CutTexts:
    """A batch cut into words."""

    texts: TextBatch
    table: WordTable
    pieces: NDArray[np.int32]  # (pieces,) number of each word
    first: NDArray[np.int64]  # (segments + 1,) where each segment's pieces begin
    longest: NDArray[np.int64]  # (segments,) characters of the longest piece


class WordCounter:
    """Counts tokens of batches by one tokenizer. Keeps about ``MOST_WORDS`` words between batches."""

    def __init__(
        self, loaded: LoadedTokenizer, *, glitch: Iterable[int] = (), model_vocab_size: int | None = None
    ) -> None:
        """``glitch`` are under-trained ids; ``model_vocab_size`` the rows of the model's embedding, if known."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a scan has a process per core already
        self._loaded = loaded
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
        self._every_word = bool(flags[:, [GLITCH, BEYOND]].any())  # a single such id matters, wherever it stands
        self._table = WordTable(loaded, flags)

    def cut(self, texts: TextBatch) -> CutTexts:
        """The words of the batch; none is encoded yet."""
        if self._table.known > MOST_WORDS:
            self._table = WordTable(self._loaded, self._flags)
        longest = np.zeros(len(texts), np.int64)
        pieces, first, total = [], [np.zeros(1, np.int64)], 0
        for here in _groups(texts.offsets):
            offsets = texts.offsets[here.start : here.stop + 1]
            some, starts = self._table.cut(texts.data, offsets, longest[here])
            pieces.append(some)
            first.append(starts[1:] + total)
            total += len(some)
        joined = np.concatenate(pieces) if pieces else np.zeros(0, np.int32)
        return CutTexts(texts, self._table, joined, np.concatenate(first), longest)

    def tally(self, texts: TextBatch) -> TokenTally:
        """Full counts for every segment of the batch."""
        return self.count(self.cut(texts), np.ones(len(texts), np.bool_))

    def count(self, cut: CutTexts, full: NDArray[np.bool_]) -> TokenTally:
        """Counts for every segment: of all its words where ``full``, (segments,), else of those in three windows.

        What is counted for a segment does not depend on other segments or on words learnt before.
        """
        n, table = len(cut.texts), cut.table
        full = full | self._every_word
        wanted = np.zeros(len(cut.pieces), np.bool_)
        sampled = np.zeros(n, np.int64)  # bytes whose words are counted
        windows(cut.pieces, cut.first, table.lengths, full, WINDOW, LONG_WORD, wanted, sampled)
        table.learn(cut.texts.data, cut.texts.offsets, cut.pieces, cut.first, wanted)
        totals, most = np.zeros((n, N_FEATURES), np.int64), np.zeros(n, np.int64)
        sums(cut.pieces, cut.first, wanted, table.features, totals, most)
        size = np.diff(cut.texts.offsets)
        scale = np.where(sampled < size, size / np.maximum(sampled, 1), 1.0)
        repeats, period = np.zeros(n, np.int64), np.zeros(n, np.int64)
        longest_period(cut.pieces, cut.first, LONGEST_PERIOD, repeats, period)
        most_of(cut.pieces, cut.first, wanted, table.repeats, repeats)
        scaled = np.ceil(totals * scale[:, None]).astype(np.int64)
        return TokenTally(
            tokens=scaled[:, TOKENS],
            most=most,
            full=sampled >= size,
            byte_pieces=scaled[:, BYTES],
            unknown=scaled[:, UNKNOWN],
            glitch=totals[:, GLITCH],
            beyond=totals[:, BEYOND],
            failed=totals[:, FAILED],
            longest=cut.longest,
            repeats=repeats,
        )

    def encode(self, text: str) -> list[int] | None:
        """The exact ids of a text without BOS and EOS, or None where the tokenizer panics."""
        found = guarded(lambda: self._loaded.tokenizer.encode_batch_fast([text], add_special_tokens=False))
        return None if found is None else list(found[0].ids)


def _groups(offsets: NDArray[np.int64]) -> Iterator[slice]:
    """Stretches of segments of about ``_GROUP_BYTES`` each; one segment alone may be larger."""
    start, n = 0, len(offsets) - 1
    while start < n:
        stop = int(np.searchsorted(offsets, offsets[start] + _GROUP_BYTES, side="right")) - 1
        stop = min(max(stop, start + 1), n)
        yield slice(start, stop)
        start = stop


def _within(ids: Iterable[int], size: int) -> list[int]:
    return [i for i in ids if 0 <= i < size]
