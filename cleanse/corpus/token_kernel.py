"""The loop over characters: tokens, their hashes, and the hash of each whole text."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cleanse.corpus.characters import (
    CHARACTER,
    CLASS_BITS,
    CYRILLIC,
    GREEK,
    INVISIBLE,
    LATIN,
    LOOKALIKE,
    SEPARATOR,
    STYLED,
    TABLE_SIZE,
    WORD,
)

WORD_WEIGHT = 2  # a word says about as much as two ideographs
BREAK_HASH = np.uint64(0x9E3779B97F4A7C15)  # the token between two segments of one prompt

_U = np.uint64
_FNV_PRIME = _U(0x100000001B3)
_FNV_BASIS = _U(0xCBF29CE484222325)
_MAX_HIDDEN = 60  # invisible characters inside one word that are told apart


@njit(cache=True, nogil=True)
def mix(x: np.uint64) -> np.uint64:
    """SplitMix64's finaliser: every input bit moves every output bit (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x ^ (x >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U(27))) * _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))


@njit(cache=True, nogil=True)
def tokenise(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    head: int,
    tail: int,
    classes: NDArray[np.uint8],
    lower: NDArray[np.uint32],
    out_off: NDArray[np.int64],
    out_hash: NDArray[np.uint64],
    out_kind: NDArray[np.uint8],
    out_start: NDArray[np.int64],
    out_end: NDArray[np.int64],
    wh: NDArray[np.uint64],
    th: NDArray[np.uint64],
    wt: NDArray[np.int64],
) -> int:
    """Fills the arrays of ``tokens.Tokens``; returns how many tokens there are."""
    ring_hash = np.empty(tail, np.uint64)
    ring_kind = np.empty(tail, np.uint8)
    ring_start = np.empty(tail, np.int64)
    ring_end = np.empty(tail, np.int64)
    new_hash = np.empty(
        _MAX_HIDDEN + 6, np.uint64
    )  # tokens that one step emits: a word, a look-alike mark, its invisibles
    new_kind = np.empty(_MAX_HIDDEN + 6, np.uint8)
    new_start = np.empty(_MAX_HIDDEN + 6, np.int64)
    new_end = np.empty(_MAX_HIDDEN + 6, np.int64)
    base = 0
    out_off[0] = 0
    for s in range(len(offsets) - 1):
        i = offsets[s]
        stop = offsets[s + 1]
        n = 0
        words = _FNV_BASIS
        others = _FNV_BASIS
        first, second = _FNV_BASIS, _U(0)
        blank = True
        weight = 0
        while i < stop:
            pending = 0
            word = _FNV_BASIS
            start = i
            scripts = 0
            in_word = False
            n_hidden = 0
            # one step: white space, or one word with the invisibles inside it, or one character
            while i < stop:
                b = data[i]
                if b < 0x80:
                    code, size = _U(b), 1
                elif b < 0xE0:
                    code, size = _U((b & 0x1F) << 6 | (data[i + 1] & 0x3F)), 2
                elif b < 0xF0:
                    code = _U(((b & 0x0F) << 12) | ((data[i + 1] & 0x3F) << 6) | (data[i + 2] & 0x3F))
                    size = 3
                else:
                    code = _U(
                        ((b & 0x07) << 18)
                        | ((data[i + 1] & 0x3F) << 12)
                        | ((data[i + 2] & 0x3F) << 6)
                        | (data[i + 3] & 0x3F)
                    )
                    size = 4
                if code < _U(TABLE_SIZE):
                    entry = classes[code]
                    folded = _U(lower[code])
                elif code < _U(0x40000):
                    entry, folded = np.uint8(CHARACTER), code
                else:
                    entry, folded = np.uint8(INVISIBLE), code
                kind = entry & CLASS_BITS
                if in_word and kind not in (WORD, INVISIBLE):
                    break
                if in_word and kind == INVISIBLE and n_hidden >= _MAX_HIDDEN:
                    break
                # the exact text, white space collapsed, in two independent 64-bit hashes
                if kind == SEPARATOR:
                    blank = True
                else:
                    if blank and first != _FNV_BASIS:
                        first = (first ^ _U(0x20)) * _FNV_PRIME
                        second = mix(second ^ _U(0x20))
                    blank = False
                    first = (first ^ code) * _FNV_PRIME
                    second = mix(second + code + _U(1))
                i += size
                if kind == WORD:
                    in_word = True
                    word = (word ^ folded) * _FNV_PRIME
                    scripts |= entry & ~np.uint8(CLASS_BITS)
                    continue
                if kind == SEPARATOR:
                    start = i
                    break
                slot = 2 + n_hidden if kind == INVISIBLE else 0
                new_hash[slot] = mix((_FNV_BASIS ^ folded) * _FNV_PRIME + _U(kind))
                new_kind[slot] = kind
                new_start[slot] = i - size
                new_end[slot] = i
                if kind == INVISIBLE:
                    n_hidden += 1
                    continue
                pending = 1
                break
            if in_word:
                new_hash[0] = mix(word)
                new_kind[0] = WORD
                new_start[0] = start
                new_end[0] = i
                pending = 1
                alphabets = (scripts & LATIN != 0) + (scripts & CYRILLIC != 0) + (scripts & GREEK != 0)
                if alphabets > 1 or scripts & STYLED != 0:
                    new_hash[1] = mix(_U(scripts))
                    new_kind[1] = LOOKALIKE
                    new_start[1] = start
                    new_end[1] = i
                    pending = 2
            for k in range(pending + n_hidden):
                j = k if k < pending else 2 + k - pending
                h, kind = new_hash[j], new_kind[j]
                if kind in (WORD, CHARACTER):
                    words = mix(words ^ h)
                    weight += WORD_WEIGHT if kind == WORD else 1
                else:
                    others = mix(others ^ h)
                if n < head:
                    at = base + n
                    out_hash[at], out_kind[at], out_start[at], out_end[at] = h, kind, new_start[j], new_end[j]
                else:
                    at = (n - head) % tail
                    ring_hash[at], ring_kind[at] = h, kind
                    ring_start[at], ring_end[at] = new_start[j], new_end[j]
                n += 1
        if n > head:
            kept = min(n - head, tail)
            for k in range(kept):
                at = (n - head - kept + k) % tail
                out_hash[base + head + k], out_kind[base + head + k] = ring_hash[at], ring_kind[at]
                out_start[base + head + k], out_end[base + head + k] = ring_start[at], ring_end[at]
            if n - head > tail:  # what stands before and after the cut are no neighbours
                out_hash[base + head - 1], out_kind[base + head - 1] = BREAK_HASH, SEPARATOR
            base += head + kept
        else:
            base += n
        out_off[s + 1] = base
        wh[s] = words if weight else others
        th[s, 0], th[s, 1] = mix(first), second
        wt[s] = weight
    return base
