"""Where in a flagged text a measure's reason stands. Python and regular expressions: only hits come here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import regex

from cleanse.measures import Span

from . import classes as c

MOST = 5  # spans that an explanation needs at most


def _first(matches: Iterator[re.Match[str]]) -> list[Span]:
    return [m.span() for m, _ in zip(matches, range(MOST), strict=False)]


def _by(pattern: str) -> Callable[[str], list[Span]]:
    """A finder for a linear pattern, compiled on first use."""

    def find(text: str) -> list[Span]:
        return _first(regex.compile(pattern).finditer(text))

    return find


nul = _by(r"\x00")
controls = _by(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
ansi = _by(r"\x1b\[")
bidi_overrides = _by(r"[\u202d\u202e]")
bidi_embeddings = _by(r"[\u202a-\u202c\u2066-\u2069]")
tags = _by(r"[\U000e0000-\U000e007f]+")
variation = _by(r"(?<![\p{S}\p{P}\p{N}\p{Lo}])[\ufe00-\ufe0f\U000e0100-\U000e01ef]+")
invisible_runs = _by(r"[\u034f\u180b-\u180f\u200b-\u200d\u2060-\u2064\ufeff\ufe00-\ufe0f\U000e0000-\U000e01ef]{4,}")
marks = _by(r"\p{M}{6,}")
replacement = _by(r"\ufffd")
noncharacters = _by(r"[\p{Noncharacter_Code_Point}]")
private_use = _by(r"\p{Co}+")
unassigned = _by(r"\p{Cn}+")
mixed_words = _by(r"\b(?=\w*\p{Latin})(?=\w*[\p{Cyrillic}\p{Greek}])\w+")
encoded = _by(r"[A-Za-z0-9+/=_\-]{48,}")


def first(text: str) -> list[Span]:
    """The first character."""
    return [(0, 1)] if text else []


def longest_run(text: str) -> list[Span]:
    """The longest stretch without white space."""
    return _longest(r"\S+", text)


def longest_word(text: str) -> list[Span]:
    """The longest stretch of letters, marks and digits."""
    return _longest(r"[\p{L}\p{M}\p{N}]+", text)


def _longest(pattern: str, text: str) -> list[Span]:
    spans = [m.span() for m in regex.compile(pattern).finditer(text)]
    return [max(spans, key=lambda s: s[1] - s[0])] if spans else []


def stray_zero_width(text: str) -> list[Span]:
    """Zero-width characters that script and neighbours do not explain, as the profile kernel judges them."""
    found = regex.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200d\u2060-\u2064\u3164\ufeff\uffa0]")
    spans: list[Span] = []
    for match in found.finditer(text):
        if is_stray(text, match.start()):
            spans.append(match.span())
            if len(spans) == MOST:
                break
    return spans


def is_stray(text: str, at: int) -> bool:
    """The kernel's own judgement of the zero-width character at ``at``."""
    from .contexts import joining_scripts, unspaced_scripts  # noqa: PLC0415
    from .profile_kernel import zero_width_fits  # noqa: PLC0415

    if text[at] == "\ufeff" and at == 0:
        return False
    table = c.character_table()
    before = int(table[ord(text[at - 1])]) if at else c.SPACE
    after = int(table[ord(text[at + 1])]) if at + 1 < len(text) else c.SPACE
    return not zero_width_fits(ord(text[at]), before, after, joining_scripts(), unspaced_scripts(), at == 0)
