"""Hostile text made fit to print: what cannot be seen is written as an escape, what is long is cut."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MARKS_SHOWN = 3  # combining marks above one letter: more climb over the lines around them
# A flood of marks; categories that show nothing, steer the terminal, or reorder what stands beside them; letters
# without a shape; variation selectors; every space but the plain one and the ideographic one.
_UNFIT = (
    rf"\P{{ccc=0}}{{{_MARKS_SHOWN + 1},}}"
    r"|[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}"
    r"\u034F\u115F\u1160\u17B4\u17B5\u3164\uFFA0\u2800\uFE00-\uFE0F\U000E0100-\U000E01EF]"
    r"|[^\S \u3000]"
)


@cache
def _unfit() -> Any:
    """The pattern, compiled by the package whose property classes the standard library lacks."""
    import regex  # noqa: PLC0415 - most texts are plain and never ask for it

    return regex.compile(_UNFIT)


def _escaped(char: str) -> str:
    return _SHORT.get(char) or (f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")  # noqa: PLR2004


def escape(text: str) -> str:
    """The text with every control, format, private and unassigned character as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return str(_unfit().sub(_replacement, text))


def _replacement(match: Any) -> str:
    found: str = match.group()
    kept = _MARKS_SHOWN if len(found) > _MARKS_SHOWN else 0
    return found[:kept] + "".join(map(_escaped, found[kept:]))


def excerpt(text: str, start: int | None, end: int | None, width: int = 120) -> str:
    """About ``width`` characters around ``[start, end)``, escaped, with ... where something was cut."""
    if start is None:
        start = end = 0
    length = (end if end is not None else start) - start
    before = max(10, (width - min(length, width)) // 2)
    left = max(0, start - before)
    right = min(len(text), left + width)
    shown = escape(text[left:right])
    if len(shown) > 3 * width:  # nearly all of it were escapes
        shown = shown[: 3 * width] + "..."
        right = len(text)
    return ("..." if left else "") + shown + ("..." if right < len(text) else "")


def name(char: str) -> str:
    """A character by code point and name: "U+202E RIGHT-TO-LEFT OVERRIDE"."""
    fallback = {"Cc": "control character", "Co": "private use", "Cn": "unassigned"}
    words = unicodedata.name(char, fallback.get(unicodedata.category(char), "no name"))
    return f"U+{ord(char):04X} {words}"
