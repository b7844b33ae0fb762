"""Splits segments into tokens and hashes them, in one pass over the UTF-8 buffer of a whole batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus import token_kernel
from cleanse.corpus.characters import class_table, lower_table
from cleanse.corpus.token_kernel import BREAK_HASH, WORD_WEIGHT, mix

HEAD = 384  # tokens kept from the start of a segment: longer ones are cut in the middle, so that one huge
TAIL = 128  # record costs no more than any other; triggers stand at the edges or anywhere in texts of usual size


@dataclass(frozen=True)
class Tokens:
    """The tokens of a batch of segments, laid end to end; ``offsets`` is (segments + 1,) into the other arrays."""

    offsets: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    kinds: NDArray[np.uint8]
    starts: NDArray[np.int64]  # byte span in the batch's buffer
    ends: NDArray[np.int64]
    word_hash: NDArray[np.uint64]  # (segments,) of all words in order, also of those that were cut
    text_hash: NDArray[np.uint64]  # (segments, 2) of all characters, runs of white space read as one space
    weight: NDArray[np.int64]  # (segments,) of all words and characters


def tokenise(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Tokens:
    """Tokens of every segment, lower-cased, at most HEAD + TAIL of each.

    ``data`` is valid UTF-8, ``offsets`` (segments + 1,) byte offsets into it.
    """
    n = len(offsets) - 1
    # A word may add a look-alike mark, so tokens never outnumber bytes plus one.
    room = int(np.minimum(np.diff(offsets) + 1, HEAD + TAIL).sum()) if n else 0
    hashes, kinds = np.empty(room, np.uint64), np.empty(room, np.uint8)
    starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
    out_offsets = np.zeros(n + 1, np.int64)
    words, text, weight = np.empty(n, np.uint64), np.empty((n, 2), np.uint64), np.empty(n, np.int64)
    used = token_kernel.tokenise(
        data, offsets, HEAD, TAIL, class_table(), lower_table(), out_offsets,
        hashes, kinds, starts, ends, words, text, weight,
    )  # fmt: skip
    return Tokens(out_offsets, hashes[:used], kinds[:used], starts[:used], ends[:used], words, text, weight)


__all__ = ["BREAK_HASH", "HEAD", "TAIL", "WORD_WEIGHT", "Tokens", "mix", "tokenise"]
