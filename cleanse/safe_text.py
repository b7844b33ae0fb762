"""Hostile text made fit to print: what cannot be seen is written as an escape, what is long is cut."""

from __future__ import annotations

import unicodedata

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Categories that show nothing, or steer the terminal, or reorder what stands beside them.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_INVISIBLE_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2800")


def _is_hidden(char: str) -> bool:
    if char in _INVISIBLE_LETTERS or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
        return True
    return unicodedata.category(char) in _HIDDEN


def escape(text: str) -> str:
    """The text with every control, format, private and unassigned character as an escape."""
    if text.isascii() and text.isprintable():
        return text
    pieces: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) else 0
        if char in _SHORT:
            pieces.append(_SHORT[char])
        elif _is_hidden(char) or (char.isspace() and char not in " \u3000") or marks > 3:  # noqa: PLR2004
            pieces.append(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")  # noqa: PLR2004
        else:
            pieces.append(char)
    return "".join(pieces)


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
