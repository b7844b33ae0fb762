"""Bytes written out as hexadecimal numbers with spaces between them, looked for where digits are many."""

from __future__ import annotations

import re

import numpy as np

from cleanse.measures import Measure, Span, TextBatch, Values, register

from . import classes as c
from . import profile_columns as col
from .profile import profile_of

_STRETCH = re.compile(r"(?:(?:0x|\\x)?[0-9a-fA-F]{2,8}[ \n:,|]{1,3}){24,}")
_LETTERS = re.compile(r"[a-fA-F]")
_FEWEST = 0.1  # letters a-f among the digits: 37 % in random bytes, none in lists of numbers
_CHARS = 800  # what rules ask about is longer; so shorter texts are not searched
_DIGITS = 0.2
_SPACES = 0.08


def hex_stretches(text: str) -> list[Span]:
    """Stretches of hexadecimal numbers that have letters among their digits, longest first."""
    spans = [
        m.span() for m in _STRETCH.finditer(text) if len(_LETTERS.findall(m.group())) >= _FEWEST * (m.end() - m.start())
    ]
    return sorted(spans, key=lambda s: s[0] - s[1])


def _chars(texts: TextBatch) -> Values:
    rows = profile_of(texts)
    chars = rows[col.CHARS]
    spaces = rows[c.SPACE] + rows[c.NEWLINE]
    likely = (chars >= _CHARS) & (rows[c.DIGIT] >= _DIGITS * chars) & (spaces >= _SPACES * chars)
    values = np.zeros(len(texts))
    for segment in np.flatnonzero(likely):
        values[segment] = sum(end - start for start, end in hex_stretches(texts.text(int(segment))))
    return values


register(Measure("hex_dump_chars", "characters", "Characters in stretches of 24 and more hexadecimal numbers.",
                 _chars, lambda text: hex_stretches(text)[:5]))  # fmt: skip
