"""What each Unicode code point is to the corpus statistics: part of a word, a token of its own, or nothing.

Words are runs of letters, marks and digits in scripts that put spaces between words. Scripts that do not (Han,
kana, Thai, Lao, Khmer, Myanmar, Tibetan) give one token per character. Marks of punctuation and symbols are tokens
of one character. Invisible characters do not break a word, they follow it as a token of their own: a zero-width
space inside a word would otherwise hide both the word and itself.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

TABLE_SIZE = 0x20000  # above it: ideographs up to 0x3FFFF, then tags and private use

SEPARATOR, WORD, CHARACTER, MARK, INVISIBLE, LOOKALIKE = range(6)
"""Kinds of tokens. SEPARATOR stands for a break between segments where it is a token."""

CLASS_BITS = 7
LATIN, CYRILLIC, GREEK, STYLED = 8, 16, 32, 64
"""Bits of the class table beside the kind: two of the first three, or STYLED, in one word make it a look-alike."""

_SPACELESS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # CJK radicals
    (0x3005, 0x3007),
    (0x3040, 0x30FF),  # kana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9D),  # half-width katakana
)
_FILLERS = frozenset({0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, 0x2800})
_SPACES = frozenset({0x20, 0x3000, *range(0x09, 0x0E)})


def _is_variation_selector(code: int) -> bool:
    return 0xFE00 <= code <= 0xFE0F or 0x180B <= code <= 0x180F  # noqa: PLR2004 - their Unicode blocks


def _class_of(code: int) -> int:
    char = chr(code)
    category = unicodedata.category(char)
    if code in _SPACES or category in ("Zl", "Zp", "Cs", "Cn"):
        return SEPARATOR
    if code in _FILLERS or category in ("Cf", "Cc", "Co") or _is_variation_selector(code):
        return INVISIBLE
    if category[0] in "PSZ" and char != "_":  # an unusual space is a sign one can plant, so a token
        return MARK
    if any(first <= code <= last for first, last in _SPACELESS):
        return CHARACTER
    return WORD | _script_bit(code, char) if category[0] == "L" else WORD


def _script_bit(code: int, char: str) -> int:
    if 0xFF21 <= code <= 0xFF5A or 0x1D400 <= code <= 0x1D7FF:  # noqa: PLR2004 - full-width, mathematical
        return STYLED
    name = unicodedata.name(char, "")
    for prefix, bit in (("LATIN", LATIN), ("CYRILLIC", CYRILLIC), ("GREEK", GREEK)):
        if name.startswith(prefix):
            return bit
    return 0


@lru_cache(maxsize=1)
def class_table() -> NDArray[np.uint8]:
    """(TABLE_SIZE,) kind and script bits of every code point below TABLE_SIZE; about 0.2 s, once per process."""
    return np.fromiter((_class_of(c) for c in range(TABLE_SIZE)), np.uint8, TABLE_SIZE)


@lru_cache(maxsize=1)
def lower_table() -> NDArray[np.uint32]:
    """(TABLE_SIZE,) the lower-case form where it is one code point, else the code point itself."""
    lowered = (chr(c).lower() for c in range(TABLE_SIZE))
    return np.fromiter((ord(s) if len(s) == 1 else c for c, s in enumerate(lowered)), np.uint32, TABLE_SIZE)
