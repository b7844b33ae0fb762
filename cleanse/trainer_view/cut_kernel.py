"""Cuts text where no tokenizer's pieces reach across, and numbers the distinct pieces: one pass over the bytes.

Pre-tokenizers of the GPT-2, GPT-4, Qwen, DeepSeek and tekken kind all start a new piece at these places, so the
ids of a text are those of its cut pieces, one after the other: before a space that precedes a word, at the edges
of runs of spaces, after line ends, and where letters, digits and punctuation meet (but not from punctuation to a
letter, which may be one piece: ``(foo``). SentencePiece models may merge across such a place; rarely.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

SPACE, NEWLINE, LETTER, DIGIT, OTHER = 0, 1, 2, 3, 4

_ASCII = np.full(256, OTHER, np.uint8)
_ASCII[[0x20, 0x09]] = SPACE
_ASCII[[0x0A, 0x0D]] = NEWLINE
_ASCII[0x30:0x3A] = DIGIT
_ASCII[0x41:0x5B] = LETTER
_ASCII[0x61:0x7B] = LETTER
_ASCII[0x80:] = LETTER  # any other script, unless _wide says otherwise


@njit(cache=True, nogil=True, inline="always")
def _class_at(data, i, end, table):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
    """The class of the character that starts at byte i."""
    b = data[i]
    if b < 0xE2:
        if b == 0xC2 and i + 1 < end:  # U+0080..U+00BF: signs, but for three letters
            c = data[i + 1]
            return LETTER if c in (0xAA, 0xB5, 0xBA) else OTHER
        return table[b]
    if i + 2 >= end:
        return LETTER
    c, d = data[i + 1], data[i + 2]
    if b == 0xE2:  # U+2000..U+2BFF is punctuation and signs, but for joiners inside words
        joiner = c == 0x80 and d in (0x8C, 0x8D)
        return LETTER if joiner or c >= 0xB0 else OTHER
    if b == 0xE3 and c == 0x80:  # U+3000..U+303F: CJK punctuation, but for iteration marks
        return LETTER if d in (0x85, 0x86, 0x87) else OTHER
    if b == 0xEF and c in (0xBC, 0xBD):  # fullwidth forms
        code = ((c & 0x3F) << 6) | (d & 0x3F)
        code -= 0xF00  # from U+FF00
        if 0x10 <= code <= 0x19:
            return DIGIT
        letter = 0x21 <= code <= 0x3A or 0x41 <= code <= 0x5A or code >= 0x66
        return LETTER if letter else OTHER
    if b >= 0xF0:  # ideographs beyond the BMP are letters, the rest mostly pictures
        return LETTER if b == 0xF0 and 0xA0 <= c <= 0xB3 else OTHER
    return LETTER


@njit(cache=True, nogil=True)
def cut(data, offsets, table, keys, numbers, state, pieces, first, new_starts, new_ends, longest):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """Cuts segments and numbers each piece by its bytes, until all are done or the table is half full.

    ``keys`` and ``numbers`` are an open-addressed table of a power of two slots. ``state`` is int64 of (known
    pieces, pieces written, segment, byte) and is brought up to date: when its segment is not the last, the caller
    grows the table and calls again. Writes the number of each piece to ``pieces``, where each segment's pieces
    start to ``first`` (segments + 1), the bytes of pieces not seen before to ``new_starts`` and ``new_ends``, and
    the longest piece of each segment in characters to ``longest``. Returns how many pieces were new.
    """
    mask = np.uint64(len(keys) - 1)
    most = len(keys) // 2
    n_known, n_pieces, s, i = state[0], state[1], state[2], state[3]
    n_new = 0
    while s < len(offsets) - 1:
        end = offsets[s + 1]
        if i <= offsets[s]:
            i = offsets[s]
            first[s] = n_pieces
        best = longest[s]
        while i < end:
            if n_known >= most:
                longest[s] = best
                state[0], state[1], state[2], state[3] = n_known, n_pieces, s, i
                return n_new
            # one piece from i to j
            begin = i
            h = np.uint64(0xCBF29CE484222325)
            characters = 0
            previous = -1
            while i < end:
                b = data[i]
                if b < 0x80:
                    here = table[b]
                    size = 1
                else:
                    here = _class_at(data, i, end, table)
                    size = 2 if b < 0xE0 else (3 if b < 0xF0 else 4)
                    if i + size > end:
                        size = end - i
                if previous >= 0:
                    if here == SPACE:
                        if previous != SPACE:
                            break
                        if i + 1 < end and table[data[i + 1]] != SPACE and table[data[i + 1]] != NEWLINE:
                            break
                    elif here == NEWLINE:
                        if previous in (LETTER, DIGIT):
                            break
                    elif previous == NEWLINE or (
                        previous not in (here, SPACE) and not (previous == OTHER and here == LETTER)
                    ):
                        break
                for k in range(size):
                    h = (h ^ np.uint64(data[i + k])) * np.uint64(0x100000001B3)
                i += size
                characters += 1
                previous = here
            best = max(best, characters)
            h ^= h >> np.uint64(29)
            h *= np.uint64(0xBF58476D1CE4E5B9)
            h ^= h >> np.uint64(32)
            if h == np.uint64(0):
                h = np.uint64(1)
            slot = h & mask
            while keys[slot] != h and keys[slot] != np.uint64(0):
                slot = (slot + np.uint64(1)) & mask
            if keys[slot] == np.uint64(0):
                keys[slot] = h
                numbers[slot] = n_known
                new_starts[n_new] = begin
                new_ends[n_new] = i
                n_new += 1
                n_known += 1
            pieces[n_pieces] = numbers[slot]
            n_pieces += 1
        longest[s] = best
        s += 1
    first[len(offsets) - 1] = n_pieces
    state[0], state[1], state[2], state[3] = n_known, n_pieces, s, i
    return n_new


@njit(cache=True, nogil=True)
def windows(pieces, first, lengths, full, width, long, wanted, sampled):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """Chooses the pieces that stand for each segment: all of a short or ``full`` one, else three windows of bytes.

    Writes the choice to ``wanted`` (pieces,) and the bytes that count to ``sampled`` (segments,). Pieces of
    ``long`` bytes and more are always wanted, and count like the rest.
    """
    for s in range(len(first) - 1):
        total = 0
        for p in range(first[s], first[s + 1]):
            total += lengths[pieces[p]]
        every = full[s] or total <= 3 * width
        at = 0
        middle = (total - width) // 2
        for p in range(first[s], first[s + 1]):
            length = lengths[pieces[p]]
            inside = every or at < width or (middle <= at < middle + width) or at >= total - width
            wanted[p] = inside or length >= long
            if wanted[p]:
                sampled[s] += length
            at += length


@njit(cache=True, nogil=True)
def unlearnt(pieces, first, wanted, learnt, lengths, offsets, numbers, starts):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """The words among the wanted pieces that are not learnt yet: number and first byte of each. Marks them learnt."""
    n = 0
    for s in range(len(first) - 1):
        at = offsets[s]
        for p in range(first[s], first[s + 1]):
            word = pieces[p]
            if wanted[p] and not learnt[word]:
                learnt[word] = True
                numbers[n], starts[n] = word, at
                n += 1
            at += lengths[word]
    return n


@njit(cache=True, nogil=True)
def sums(pieces, first, wanted, features, out, most):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """Adds the features of each segment's wanted pieces, and the first feature of all its pieces to ``most``.

    features: (known, k) int32; out: (segments, k) int64; most: (segments,) int64.
    """
    for s in range(len(first) - 1):
        for p in range(first[s], first[s + 1]):
            most[s] += features[pieces[p], 0]
            if wanted[p]:
                for k in range(features.shape[1]):
                    out[s, k] += features[pieces[p], k]


@njit(cache=True, nogil=True)
def most_of(pieces, first, wanted, values, out):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """Raises out, (segments,), to the largest value among each segment's wanted pieces. values: (known,)."""
    for s in range(len(first) - 1):
        for p in range(first[s], first[s + 1]):
            if wanted[p]:
                out[s] = max(out[s], values[pieces[p]])


@njit(cache=True, nogil=True)
def longest_period(ids, first, longest_lag, out, lag_out):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """For each stretch of ids: the most times any period of 1..longest_lag ids repeats, and that period.

    A run of n equal ids repeats 32 times when n is 32; a period p repeats as often as its matches at lag p, over
    p, plus 1.
    """
    for s in range(len(first) - 1):
        start, end = first[s], first[s + 1]
        best, best_lag = 1, 0
        if end == start:
            best = 0
        for lag in range(1, min(longest_lag, end - start - 1) + 1):
            run = 0
            for i in range(start + lag, end):
                if ids[i] == ids[i - lag]:
                    run += 1
                    if run // lag + 1 > best:
                        best, best_lag = run // lag + 1, lag
                else:
                    run = 0
        out[s] = best
        lag_out[s] = best_lag


def byte_classes() -> NDArray[np.uint8]:
    """The class of each first byte, shape (256,)."""
    return _ASCII
