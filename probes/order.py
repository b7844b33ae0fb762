"""What the order of words saves a model: the loss of a text set against that of its own words, shuffled. NumPy only.

A text whose words already stand in no order costs the same when they are shuffled once more; any other text costs
more. Both losses are means over the very same tokens, so what the text is about cancels out.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from .types import Ids, Mask, ProbeRecord

#: Fewer words than this have no order to speak of.
LEAST_WORDS = 4
#: First and last code point of scripts written without spaces: Thai and Lao, Myanmar, Khmer, kana and Han, Han beyond
#: the basic plane. There every token counts as a word. Korean has spaces.
UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x2E80, 0xA4CF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)


def word_starts(tokenizer: Tokenizer, vocabulary: int) -> Mask:
    """Which token ids begin a word, (vocabulary,): those that begin with a space or with a letter of such a script."""
    starts = np.zeros(vocabulary, dtype=np.bool_)
    for i in range(vocabulary):
        written = tokenizer.id_to_token(i)
        first = tokenizer.decode([i], skip_special_tokens=False)[:1]
        # SentencePiece writes a space as U+2581 and drops it when a token is decoded alone.
        spaced = first.isspace() or (written or "").startswith("\u2581")
        starts[i] = spaced or any(low <= ord(first) <= high for low, high in UNSPACED if first)
    return starts


def reordered(record: ProbeRecord, starts: Mask) -> ProbeRecord | None:
    """The record with its supervised words in another order, drawn from its content; None where it has too few.

    Everything that is not supervised stays in its place, and so does every length.
    """
    places = np.flatnonzero(record.supervised[1:]) + 1
    ids = record.ids[places]
    if not len(ids):
        return None
    begins = starts[ids]
    begins[0] = True
    word: NDArray[np.int64] = np.cumsum(begins) - 1
    n_words = int(word[-1]) + 1
    if n_words < LEAST_WORDS:
        return None
    rank = np.random.default_rng(zlib.crc32(ids.astype("<i8").tobytes())).permutation(n_words)
    shuffled: Ids = record.ids.copy()
    shuffled[places] = ids[np.argsort(rank[word], kind="stable")]
    return ProbeRecord(shuffled, record.supervised, record.n_bytes, record.truncated)
