"""Repeats of any period in one pass: a match finder as compressors use, run over each segment.

A stretch that repeats with period p equals itself shifted by p. The finder remembers where each 8-byte gram
was last seen; when the gram at i was last seen at j, the texts from j and i on are compared for as long as
they agree. Agreement over L bytes at distance p means that a unit of p bytes stands there L / p + 1 times in a
row: repeated characters, words, phrases and paragraphs alike, in any script, without tokenising.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

PERIOD_BYTES, PERIOD_STRETCH, RULER_STRETCH, PERIOD_REPEATS = 0, 1, 2, 3
COPIED_BYTES, TOTAL_REPEATED = 4, 5
N_COLUMNS = 6

MIN_BYTES = 64  # shorter segments are not looked at
_BITS = 13  # slots of the gram table: 2^13 positions are 64 kB, which stays in the second-level cache
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
MIN_REPEATS = 8  # fewer in a row is rhetoric
MIN_COPY = 24  # a copy shorter than this (bytes) is how language works


@njit(cache=True, nogil=True)
def _is_ruler(data: NDArray[np.uint8], start: int, period: int) -> bool:
    """Whether a unit holds neither letter nor digit: "-----", "=-=-", ". . ." are drawn, not said."""
    for k in range(start, start + min(period, 64)):
        b = data[k]
        if b >= 0x80 or 48 <= b <= 57 or 65 <= b <= 90 or 97 <= b <= 122:
            return False
    return True


@njit(cache=True, nogil=True)
def repetition(data: NDArray[np.uint8], offsets: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Fills ``out`` of shape (segments, N_COLUMNS), in bytes.

    PERIOD_STRETCH the longest periodic stretch whose unit has a letter or digit, PERIOD_BYTES its period and
    PERIOD_REPEATS the number of units in it; RULER_STRETCH the same for units of signs only; TOTAL_REPEATED
    the sum of all periodic stretches of at least MIN_REPEATS units; COPIED_BYTES all bytes that a match of
    at least MIN_COPY bytes covers.
    """
    last = np.full(1 << _BITS, -1, np.int64)
    nowhere = np.zeros((0, 2), np.int64)
    for s in range(len(offsets) - 1):
        if offsets[s + 1] - offsets[s] >= MIN_BYTES:
            _scan(data, offsets[s], offsets[s + 1], last, out[s], nowhere)


@njit(cache=True, nogil=True)
def stretches(data: NDArray[np.uint8], places: NDArray[np.int64]) -> int:
    """Writes [start, end) in bytes of the periodic stretches of one text to ``places``; their number."""
    last = np.full(1 << _BITS, -1, np.int64)
    return _scan(data, 0, len(data), last, np.zeros(N_COLUMNS, np.int64), places)


@njit(cache=True, nogil=True)
def _scan(
    data: NDArray[np.uint8],
    start: int,
    end: int,
    last: NDArray[np.int64],  # (2**_BITS,) where each gram was last seen, in any segment
    row: NDArray[np.int64],
    places: NDArray[np.int64],  # (n, 2)
) -> int:
    shift = np.uint64(64 - _BITS)
    best_stretch = best_period = best_repeats = ruler = copied = total = found = 0
    gram = np.uint64(0)
    i = start
    while i < min(start + 7, end):
        gram = (gram >> np.uint64(8)) | (np.uint64(data[i]) << np.uint64(56))
        i += 1
    while i < end:
        gram = (gram >> np.uint64(8)) | (np.uint64(data[i]) << np.uint64(56))
        slot = np.int64((gram * _MULTIPLIER) >> shift)
        if i & 3:  # every gram is remembered, every fourth is looked up: a stretch is found 3 bytes late
            last[slot] = i
            i += 1
            continue
        seen = last[slot]
        last[slot] = i
        if seen >= start + 7 and data[seen] == data[i] and data[seen - 4] == data[i - 4]:
            period = i - seen
            back = i - 7
            k = back
            while k <= i and data[k] == data[k - period]:
                k += 1
            if k > i:
                while k < end and data[k] == data[k - period]:
                    k += 1
                while back - period > start and data[back - 1] == data[back - 1 - period] and i - back < 11:
                    back -= 1
                if k - back >= MIN_COPY:
                    copied += k - back
                    stretch = k - back + period
                    if stretch >= MIN_REPEATS * period and stretch >= MIN_BYTES:
                        total += stretch
                        if found < len(places):
                            places[found, 0], places[found, 1] = back - period, k
                            found += 1
                        if _is_ruler(data, back, period):
                            ruler = max(ruler, stretch)
                        elif stretch > best_stretch:
                            best_stretch, best_period = stretch, period
                            best_repeats = stretch // period
                # Jump to the end of the match; the gram there is built anew.
                i = k - 7
                while i < k:
                    gram = (gram >> np.uint64(8)) | (np.uint64(data[i]) << np.uint64(56))
                    i += 1
                continue
        i += 1
    row[PERIOD_BYTES] = best_period
    row[PERIOD_STRETCH] = best_stretch
    row[PERIOD_REPEATS] = best_repeats
    row[RULER_STRETCH] = ruler
    row[COPIED_BYTES] = copied
    row[TOTAL_REPEATED] = total
    return found
