"""Scripts in which invisible characters are ordinary, and the bytes that single-byte encodings would give."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from .classes import script_codes

# ZWJ and ZWNJ choose between joined and separate forms here (Unicode 16, chapters 9, 12 to 14 and 23.2).
JOINING = frozenset(
    [
        "Arab",
        "Syrc",
        "Mand",
        "Nkoo",
        "Adlm",
        "Rohg",
        "Mong",
        "Phag",
        "Hebr",
        "Thaa",
        "Deva",
        "Beng",
        "Guru",
        "Gujr",
        "Orya",
        "Taml",
        "Telu",
        "Knda",
        "Mlym",
        "Sinh",
        "Tibt",
        "Mymr",
        "Khmr",
        "Java",
        "Bali",
        "Sund",
        "Newa",
        "Tirh",
        "Gran",
        "Sidd",
        "Modi",
        "Takr",
        "Shrd",
        "Khoj",
        "Sind",
        "Cakm",
        "Lepc",
        "Limb",
        "Batk",
        "Bugi",
        "Rjng",
        "Kthi",
        "Sylo",
        "Mtei",
        "Saur",
        "Ahom",
        "Lana",
    ]
)
# Written without spaces between words: a zero-width space tells where a line may break.
UNSPACED = frozenset(
    [
        "Thai",
        "Laoo",
        "Khmr",
        "Mymr",
        "Tibt",
        "Java",
        "Bali",
        "Lana",
        "Talu",
        "Tale",
        "Tavt",
        "Cham",
        "Sund",
        "Batk",
        "Bugi",
        "Rjng",
        "Limb",
    ]
)

_HIGH = 0x2200


@cache
def joining_scripts() -> NDArray[np.bool_]:
    """Shape (256,): by script number, whether ZWJ and ZWNJ are ordinary."""
    return _by_script(JOINING)


@cache
def unspaced_scripts() -> NDArray[np.bool_]:
    """Shape (256,): by script number, whether the zero-width space is ordinary."""
    return _by_script(UNSPACED)


@cache
def windows_bytes(codec: str) -> NDArray[np.uint8]:
    """Shape (0x2200,): the byte a code point has in a Windows code page, 0 for none.

    Bytes that the code page leaves undefined count as the C1 control of that number, as web browsers and
    careless decoders have it (ftfy calls these the sloppy encodings).
    """
    table = np.zeros(_HIGH, np.uint8)
    for byte in range(0x80, 0x100):
        table[byte] = byte if codec == "cp1252" or byte < 0xA0 else table[byte]  # noqa: PLR2004
    for byte in range(0x80, 0x100):
        try:
            point = ord(bytes([byte]).decode(codec))
        except UnicodeDecodeError:
            continue
        if point < _HIGH:
            table[point] = byte
    return table


def _by_script(codes: frozenset[str]) -> NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    for number, code in enumerate(script_codes()):
        table[number] = code in codes
    return table
