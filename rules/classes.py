"""What a character is to the kernels: one class out of 21, one script, two flags, packed into 16 bits.

The table is built by ``scripts/build_script_tables.py`` from the Unicode data of the ``regex`` package and
stored as ranges; ``character_table`` unfolds it once per process (some milliseconds).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

# Classes 0 to 4 make up words.
LOWER = 0
UPPER = 1
LETTER = 2  # without case: Lo, Lm, Lt
MARK = 3
DIGIT = 4  # Nd, Nl, No
PUNCT = 5
SYMBOL = 6  # and format characters that have a shape of their own (Arabic number signs)
SPACE = 7
NEWLINE = 8
# From here on a character is odd enough to be looked at one by one.
CONTROL = 9  # Cc without tab, line ends and form feed
ZERO_WIDTH = 10
BIDI = 11  # marks, embeddings, overrides, isolates
TAG = 12  # U+E0000 to U+E007F
VARIATION = 13  # variation selectors
FORMAT = 14  # other invisible format characters: soft hyphen, annotation, deprecated ones
PRIVATE = 15
NONCHARACTER = 16
UNASSIGNED = 17
REPLACEMENT = 18  # U+FFFD
N_CLASSES = 19

CLASS_MASK = 31
RTL_FLAG = 32  # letters written right to left
LOOKALIKE_FLAG = 64  # a Cyrillic or Greek letter that looks like a Latin one
SCRIPT_SHIFT = 8

COMMON = 0  # script numbers that the kernels know by heart
INHERITED = 1
LATIN = 2
CYRILLIC = 3
GREEK = 4
HAN = 5
HIRAGANA = 6
KATAKANA = 7
HANGUL = 8
EMOJI = 9
THAI = 10
N_FIXED = 11
FIXED_SCRIPTS = ("Zyyy", "Zinh", "Latn", "Cyrl", "Grek", "Hani", "Hira", "Kana", "Hang", "Zsye", "Thai")

N_CODE_POINTS = 0x110000


@cache
def script_codes() -> tuple[str, ...]:
    """ISO 15924 codes by script number."""
    with np.load(_file(), allow_pickle=False) as stored:
        return tuple(str(code) for code in stored["codes"])


@cache
def script_number(code: str) -> int:
    """The number of an ISO 15924 code. Raises ValueError for a script without characters of its own."""
    return script_codes().index(code)


@cache
def character_table() -> NDArray[np.uint16]:
    """Class, flags and script of every code point: shape (0x110000,)."""
    with np.load(_file(), allow_pickle=False) as stored:
        lengths = np.diff(np.append(np.cumsum(stored["gaps"], dtype=np.int64), N_CODE_POINTS))
        return np.repeat(stored["values"], lengths)


def _file() -> str:
    return str(files(__package__) / "data" / "characters.npz")
