"""Text from an untrusted file, made safe to print."""

from __future__ import annotations

EXCERPT = 160
"""Characters of a record that an event quotes."""


def shown(text: str, limit: int = EXCERPT) -> str:
    """The beginning of a text with everything unprintable (controls, bidi, zero-width, surrogates) escaped."""
    cut = text[:limit]
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else _escaped(c) for c in cut)


def excerpt(raw: bytes, around: int = 0) -> str:
    """Some bytes of a record as safe text, from a little before the byte ``around``; bad bytes as U+FFFD."""
    start = max(0, around - EXCERPT // 2)
    return shown(raw[start : start + 4 * EXCERPT].decode("utf-8", "replace"))


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
