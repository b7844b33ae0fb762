"""Builds rules/data/characters.npz: class, script and flags of every code point, as ranges.

The Unicode data is that of the installed ``regex`` package (its release follows Unicode's).
usage: python scripts/build_script_tables.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import regex
from cleanse.rules import classes as c
from numpy.typing import NDArray

OUT = Path(__file__).resolve().parents[1] / "rules" / "data" / "characters.npz"

# Surrogates cannot stand in a UTF-8 buffer; a letter takes their place so that positions are code points.
SURROGATES = range(0xD800, 0xE000)
EVERY = "".join("a" if cp in SURROGATES else chr(cp) for cp in range(c.N_CODE_POINTS))

CATEGORY_CLASS = {
    "Ll": c.LOWER, "Lu": c.UPPER, "Lo": c.LETTER, "Lm": c.LETTER, "Lt": c.LETTER,
    "Mn": c.MARK, "Me": c.MARK, "Mc": c.MARK, "Nd": c.DIGIT, "Nl": c.DIGIT, "No": c.DIGIT,
    "P": c.PUNCT, "S": c.SYMBOL, "Zs": c.SPACE, "Zl": c.NEWLINE, "Zp": c.NEWLINE,
    "Cc": c.CONTROL, "Cf": c.FORMAT, "Co": c.PRIVATE, "Cn": c.UNASSIGNED,
}  # fmt: skip

# Where the class is not what the general category says.
ZERO_WIDTH = [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, *range(0x200B, 0x200E), *range(0x2060, 0x2065)]
ZERO_WIDTH += [0x3164, 0xFEFF, 0xFFA0]
BIDI = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
VARIATION = [*range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]
VISIBLE_FORMAT = [*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD]

# Unicode's confusables.txt, the single letters whose prototype is a Latin letter (UTS #39, common ones).
LOOKALIKES = "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u051b\u051d\u04bb\u0432"
LOOKALIKES += "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0408\u0405\u04ae"
LOOKALIKES += "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf\u03bd"


def spans(pattern: str) -> list[tuple[int, int]]:
    """The ranges of code points that match a character class."""
    return [m.span() for m in regex.finditer(f"(?:{pattern})+", EVERY)]


def classes() -> NDArray[np.uint16]:
    """The class of every code point."""
    table = np.full(c.N_CODE_POINTS, c.UNASSIGNED, np.uint16)
    for category, number in CATEGORY_CLASS.items():
        for start, end in spans(rf"\p{{gc={category}}}" if len(category) > 1 else rf"\p{{{category}}}"):
            table[start:end] = number
    table[0xD800:0xE000] = c.LETTER
    table[[0x09]] = c.SPACE
    table[[0x0A, 0x0B, 0x0C, 0x0D, 0x85]] = c.NEWLINE
    for points, number in (
        (ZERO_WIDTH, c.ZERO_WIDTH),
        (BIDI, c.BIDI),
        (VARIATION, c.VARIATION),
        (VISIBLE_FORMAT, c.SYMBOL),
        (range(0xE0000, 0xE0080), c.TAG),
        ([0xFFFD], c.REPLACEMENT),
        (range(0xFDD0, 0xFDF0), c.NONCHARACTER),
        ([plane << 16 | low for plane in range(17) for low in (0xFFFE, 0xFFFF)], c.NONCHARACTER),
    ):
        table[list(points)] = number
    return table


def scripts() -> tuple[NDArray[np.uint16], list[str]]:
    """The script number of every code point, and the ISO 15924 codes by number."""
    aliases: dict[int, list[str]] = {}
    for name, value in regex._regex_core.PROPERTIES["SCRIPT"][1].items():  # noqa: SLF001 - the only list of scripts
        aliases.setdefault(value, []).append(name)
    codes = list(c.FIXED_SCRIPTS)
    table = np.full(c.N_CODE_POINTS, c.COMMON, np.uint16)
    for names in aliases.values():
        code = (names[1] if len(names) > 1 else names[0])[:4].title()
        if code in ("Zyyy", "Zzzz"):
            continue
        found = spans(rf"\p{{sc={names[0]}}}")
        if code not in codes and found:
            codes.append(code)
        for start, end in found:
            table[start:end] = codes.index(code)
    for start, end in spans(r"[\p{Extended_Pictographic}\p{Regional_Indicator}\p{Emoji_Modifier}]"):
        start = max(start, 0x100)  # noqa: PLW2901 - the copyright and registered signs are no emoji here
        table[start:end] = np.where(table[start:end] == c.COMMON, c.EMOJI, table[start:end])
    return table, codes


def main() -> None:
    """Writes the file and says how large it came out."""
    table, codes = scripts()
    if len(codes) > 255:  # noqa: PLR2004 - eight bits
        raise SystemExit("more than 255 scripts: widen SCRIPT_SHIFT")
    table = (table << c.SCRIPT_SHIFT) | classes()
    for start, end in spans(r"[\p{bc=R}\p{bc=AL}]"):
        rtl = np.where((table[start:end] & c.CLASS_MASK) <= c.MARK, c.RTL_FLAG, 0)
        table[start:end] |= rtl.astype(np.uint16)
    table[[ord(letter) for letter in LOOKALIKES]] |= c.LOOKALIKE_FLAG
    starts = np.flatnonzero(np.diff(table.astype(np.int64), prepend=-1))
    OUT.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        OUT,
        gaps=np.diff(starts, prepend=0).astype(np.uint32),
        values=table[starts],
        codes=np.array(codes, "U4"),
    )
    print(f"{OUT}: {OUT.stat().st_size:,} bytes, {len(starts):,} ranges, {len(codes)} scripts")


if __name__ == "__main__":
    main()
