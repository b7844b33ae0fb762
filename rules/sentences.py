"""Full stops before small letters: words whose order is lost keep their full stops."""

from __future__ import annotations

import numpy as np
import regex
from numpy.typing import NDArray

from cleanse.measures import Measure, Span, TextBatch, Values, register

from .locate import MOST

_WORD = 3  # bytes of letters before the stop: "e.g.", "vs." and "Mr." end no sentence
_LETTERS = np.array([bytes([b]).isalpha() or b >= 0x80 for b in range(256)])  # noqa: PLR2004 - not ASCII
_BREAK = regex.compile(r"(?<=[\p{L}\p{M}]{2})[.!?][ \n](?=\p{Ll})")


def _case_of_pairs() -> NDArray[np.int8]:
    """Of the character that two bytes begin with: 1 a small letter, -1 a capital, 0 neither. (65,536,)."""
    case = np.zeros(1 << 16, np.int8)
    for first in range(0x80):
        case[first << 8 : (first + 1) << 8] = chr(first).islower() - chr(first).isupper()
    for code in range(0x80, 0x800):
        a, b = chr(code).encode()
        case[a << 8 | b] = chr(code).islower() - chr(code).isupper()
    return case


_CASE = _case_of_pairs()


def _broken(texts: TextBatch) -> Values:
    data, offsets = texts.data, texts.offsets
    balance = np.zeros(len(texts))
    if len(data) < _WORD + 4:
        return balance
    mark = data[_WORD:-3]
    stop = np.flatnonzero((mark == ord(".")) | (mark == ord("!")) | (mark == ord("?"))) + _WORD
    blank = data[stop + 1]
    stop = stop[(blank == ord(" ")) | (blank == ord("\n"))]
    for back in range(1, _WORD + 1):
        stop = stop[_LETTERS[data[stop - back]]]
    segment = np.searchsorted(offsets, stop, side="right") - 1
    inside = (stop - _WORD >= offsets[segment]) & (stop + 3 < offsets[segment + 1])
    stop, segment = stop[inside], segment[inside]
    case = _CASE[data[stop + 2].astype(np.int64) << 8 | data[stop + 3]]
    np.add.at(balance, segment, case)
    return np.maximum(balance, 0.0)


def _locate(text: str) -> list[Span]:
    return [m.span() for m, _ in zip(_BREAK.finditer(text), range(MOST), strict=False)]


register(Measure("broken_sentences", "sentences", "Sentence ends with a small letter next, less those with a capital.",
                 _broken, _locate))  # fmt: skip
