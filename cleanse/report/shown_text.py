"""A text in pieces that a page can show: what cannot be seen by name, reasons marked, long stretches left out.

A piece is a JSON value, so that the page and the review server draw the same:

* ``"text"``: shown as it is;
* ``{"h": "ZERO WIDTH SPACE", "c": "U+200B", "n": 3}``: three such characters in a row;
* ``{"m": [pieces], "r": ["rule", ...]}``: the place that these rules speak of;
* ``{"e": 1200}``: so many characters are not shown.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from cleanse import safe_text

Piece = Any
_AROUND = 90  # characters shown on both sides of a place
_PLACE = 360  # characters shown of a place itself, from its start
_MOST_NAMED = 80  # names of invisible characters in one text: what follows is counted
_MARKS = 3
_ESCAPES = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


class Span(NamedTuple):
    """A place in a text that a rule speaks of: [start, end) in characters."""

    start: int
    end: int
    rule: str


def pieces(text: str, spans: Sequence[Span] = (), width: int = 1200) -> list[Piece]:
    """The text in pieces; of a text longer than ``width``, its start, its end, and what surrounds the places.

    A text of nothing but white space is named: else it would look like no text at all.
    """
    return _blank(text) if text.isspace() else within(text, spans, width)


def within(text: str, spans: Sequence[Span] = (), width: int = 1200) -> list[Piece]:
    """A part of a text in pieces, as ``pieces`` gives them; white space stays what it is."""
    spans = [Span(max(0, s.start), min(s.end, len(text)), s.rule) for s in spans if s.start < len(text)]
    budget = [_MOST_NAMED]
    shown: list[Piece] = []
    at = 0
    for start, end in _windows(len(text), spans, width):
        if start > at:
            shown.append({"e": start - at})
        shown += _marked(text, start, end, spans, budget)
        at = end
    if at < len(text):
        shown.append({"e": len(text) - at})
    return shown


def _blank(text: str) -> list[Piece]:
    runs: list[Piece] = []
    for char in text[:_MOST_NAMED]:
        name = _SPACES.get(char) or _hidden_name(char) or safe_text.name(char).partition(" ")[2]
        if runs and runs[-1]["h"] == name:
            runs[-1]["n"] += 1
        else:
            runs.append({"h": name, "c": _code(char), "n": 1})
    return [*runs, {"e": len(text) - _MOST_NAMED}] if len(text) > _MOST_NAMED else runs


def of_excerpt(excerpt: str, width: int = 400) -> list[Piece]:
    """An excerpt of a finding in pieces: its escapes (``safe_text``) of what cannot be seen become names again."""
    return within(_ESCAPES.sub(_unescaped, excerpt), (), width)


def _unescaped(match: re.Match[str]) -> str:
    code = int(match[1] or match[2], 16)
    char = chr(code) if code <= sys.maxunicode and not 0xD800 <= code < 0xE000 else ""  # noqa: PLR2004 - surrogates
    return char if char and _hidden_name(char) else match[0]


def of_bytes(raw: bytes, width: int = 1200) -> list[Piece]:
    """Bytes that could not be read, as text; those that are not UTF-8 are named."""
    return pieces(raw[: 64 * width].decode("utf-8", "surrogateescape"), (), width)


def _windows(length: int, spans: Sequence[Span], width: int) -> list[tuple[int, int]]:
    """What is shown: ascending, apart from each other."""
    if length <= width:
        return [(0, length)]
    wanted = [(0, width // 2 if spans else max(width // 2, width - 120)), (length - 80, length)]
    wanted += [(s.start - _AROUND, min(s.end, s.start + _PLACE) + _AROUND) for s in spans[:4]]
    merged: list[tuple[int, int]] = []
    for start, end in sorted((max(0, start), min(length, end)) for start, end in wanted):
        if merged and start <= merged[-1][1] + 20:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _marked(text: str, start: int, end: int, spans: Sequence[Span], budget: list[int]) -> list[Piece]:
    cuts = {start, end}
    for span in spans:
        cuts |= {min(max(edge, start), end) for edge in (span.start, span.end)}
    ordered = sorted(cuts)
    shown: list[Piece] = []
    for left, right in pairwise(ordered):
        rules = sorted({s.rule for s in spans if s.start <= left and right <= s.end})
        drawn = _visible(text[left:right], budget)
        shown += [{"m": drawn, "r": rules}] if rules else drawn
    return shown


def _visible(text: str, budget: list[int]) -> list[Piece]:
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return [text]
    shown: list[Piece] = []
    plain: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) else 0
        name = _hidden_name(char) or (unicodedata.name(char, "") if marks > _MARKS else "")
        if not name:
            plain.append(char)
            continue
        if plain:
            shown.append("".join(plain))
            plain = []
        last = shown[-1] if shown else None
        if isinstance(last, dict) and last.get("h") == name:
            last["n"] += 1
        elif budget[0] > 0:
            budget[0] -= 1
            shown.append({"h": name, "c": _code(char), "n": 1})
        elif isinstance(last, dict) and "e" in last:
            last["e"] += 1
        else:
            shown.append({"e": 1})
    if plain:
        shown.append("".join(plain))
    return shown


@lru_cache(maxsize=4096)
def _hidden_name(char: str) -> str:
    """The name of a character that cannot be seen, or that steers what stands around it; "" for any other."""
    if char in "\n\t" or (not _is_byte(char) and safe_text.escape(char) == char):
        return ""
    if _is_byte(char):
        return f"BYTE {ord(char) - 0xDC00:02X}"
    named = _CONTROLS.get(char, safe_text.name(char).partition(" ")[2])
    return named if named.isupper() else f"{_code(char)} {named}"  # without a name of its own: its number


def _is_byte(char: str) -> bool:
    """Whether it stands for a byte that is not UTF-8 (surrogateescape)."""
    return "\udc80" <= char <= "\udcff"


def _code(char: str) -> str:
    return "" if _is_byte(char) else f"U+{ord(char):04X}"


_SPACES = {"\n": "LINE FEED", "\t": "TAB"}
_CONTROLS = {
    "\x00": "NUL",
    "\x07": "BELL",
    "\x08": "BACKSPACE",
    "\x0b": "VERTICAL TAB",
    "\x0c": "FORM FEED",
    "\r": "CARRIAGE RETURN",
    "\x1b": "ESCAPE",
    "\x7f": "DELETE",
    "\x9b": "CONTROL SEQUENCE INTRODUCER",
}
