"""Says what is wrong with one JSON text that the fast parser refused, or that it is right after all."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import orjson

from cleanse.records import EventKind
from cleanse.sources.charsets import likely
from cleanse.sources.shown import excerpt, shown

_SURROGATE = re.compile("[\ud800-\udfff]")
_MIN_INT, _MAX_INT = -(1 << 63), (1 << 64) - 1
_INT_DIGITS = 21  # of the longest integer that may fit 64 bits, its sign and a spare one
_SAFE = 1 << 53
_AROUND = 60  # characters quoted on both sides
MAX_NESTING = 200
"""Objects and lists inside each other: beyond this a record is set apart. No training record comes near it, orjson
writes no more than 254 levels, and Python's own recursion ends below the 1,024 that orjson reads."""


@dataclass
class Verdict:
    """``kind`` None: a record, in ``value``. Else what is wrong, in words, and where."""

    kind: EventKind | None = None
    detail: str = ""
    value: dict[str, Any] = field(default_factory=dict)
    field_path: str = ""
    start: int | None = None
    excerpt: str = ""
    odd_numbers: list[tuple[str, str]] = field(default_factory=list)  # (field, literal): NaN and infinities
    has_big: bool = False  # an integer that a double cannot hold


class _RefusedError(Exception):
    """Leaves the standard parser with a verdict."""

    def __init__(self, kind: EventKind, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


def diagnose(raw: bytes, *, last: bool) -> Verdict:
    """Judges one line (without its line ending).

    ``last``: nothing follows it in the source, so a value that stops in the middle was cut off.
    Never raises, whatever the bytes are; linear in their number.
    """
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if last and error.reason == "unexpected end of data" and error.end == len(raw):
            return _wrong(EventKind.TRUNCATED, "the file ends inside a character", raw, error.start)
        found = f"byte 0x{raw[error.start]:02x} at offset {error.start}"
        return _wrong(EventKind.INVALID_UTF8, f"{found}; {likely(raw, error.start)}", raw, error.start)
    words, position = "", 0
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        words, position = error.msg, error.pos
        if last and "end of data" in words:
            return _wrong(EventKind.TRUNCATED, f"the file ends inside a value: {words}", raw, len(raw))
    else:
        if not isinstance(value, dict):
            return _wrong(EventKind.NOT_AN_OBJECT, f"expected an object, found {_kind(value)}", raw, 0)
    return _strict(raw, words, position)


def _nested_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        below = (v.values() if isinstance(v, dict) else v for v in level)
        level = [child for children in below for child in children if isinstance(child, (dict, list))]
    return bool(level)


class _Hooks:
    """What the standard parser shows while it reads: it is slower than orjson, but nothing is lost unseen."""

    def __init__(self) -> None:
        self.literals = False  # NaN or Infinity was among them
        self.big = False

    def constant(self, literal: str) -> float:
        self.literals = True
        return float(literal)

    def integer(self, digits: str) -> int:
        number = int(digits) if len(digits) <= _INT_DIGITS else _MAX_INT + 1
        if not _MIN_INT <= number <= _MAX_INT:
            raise _RefusedError(EventKind.NUMBER_OUT_OF_RANGE, f"{shown(digits, 40)} does not fit 64 bits")
        self.big |= abs(number) > _SAFE
        return number

    def real(self, literal: str) -> float:
        number = float(literal)
        if math.isinf(number):
            raise _RefusedError(EventKind.NUMBER_OUT_OF_RANGE, f"{shown(literal, 40)} does not fit a double")
        return number

    def pairs(self, items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) != len(items):
            twice = Counter(key for key, _ in items).most_common(1)[0][0]
            detail = f"the key {shown(twice, 60)!r} stands twice in one object"
            raise _RefusedError(EventKind.DUPLICATE_KEY, detail)
        return made

    def parse(self, raw: bytes) -> Any:
        try:
            value = json.loads(
                raw,
                parse_constant=self.constant,
                parse_int=self.integer,
                parse_float=self.real,
                object_pairs_hook=self.pairs,
            )
            too_deep = _nested_deeper(value, MAX_NESTING)
        except RecursionError:
            too_deep = True
        if too_deep:
            raise _RefusedError(EventKind.UNPARSEABLE, f"nested more than {MAX_NESTING} levels deep")
        return value


def _strict(raw: bytes, words: str, position: int) -> Verdict:
    """The verdict on UTF-8 text; ``words``: why orjson refused it, at ``position`` ("" where it did not)."""
    hooks = _Hooks()
    refused = f"{words} at character {position}"
    try:
        value = hooks.parse(raw)
    except _RefusedError as error:
        return _wrong(error.kind, error.detail, raw, 0)
    except ValueError as error:
        return _wrong(EventKind.UNPARSEABLE, refused if words else str(error), raw, position)
    if not isinstance(value, dict):
        return _wrong(EventKind.NOT_AN_OBJECT, f"expected an object, found {_kind(value)}", raw, 0)
    surrogate = _find_surrogate(value, "")
    if surrogate is not None:
        return _lone_surrogate(*surrogate)
    if words and not hooks.literals:
        return _wrong(EventKind.UNPARSEABLE, refused, raw, position)
    verdict = Verdict(value=value, has_big=hooks.big)
    if hooks.literals:
        _find_odd(value, "", verdict.odd_numbers)
    return verdict


def _lone_surrogate(path: str, at: int, text: str) -> Verdict:
    said = f"{shown(path, 80)}: lone surrogate U+{ord(text[at]):04X} at character {at}"
    around = shown(text[max(0, at - _AROUND) : at + _AROUND])
    return Verdict(EventKind.LONE_SURROGATE, said, {}, shown(path), at, around)


def _wrong(kind: EventKind, detail: str, raw: bytes, at: int) -> Verdict:
    return Verdict(kind, detail, excerpt=excerpt(raw, at))


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _find_surrogate(value: Any, path: str) -> tuple[str, int, str] | None:
    """The first lone surrogate: its field, the character index in it, and the text."""
    if isinstance(value, str):
        found = _SURROGATE.search(value)
        return (path, found.start(), value) if found else None
    for key, child in _children(value, path):
        if _SURROGATE.search(key):
            return (path or "(a key)", _SURROGATE.search(key).start(), key)  # type: ignore[union-attr]
        inner = _find_surrogate(child, key)
        if inner is not None:
            return inner
    return None


def _find_odd(value: Any, path: str, into: list[tuple[str, str]]) -> None:
    # A finite literal that overflows was refused before: what is not finite was written so.
    if isinstance(value, float) and not math.isfinite(value):
        into.append((shown(path), _literal(value)))
    for key, child in _children(value, path):
        _find_odd(child, key, into)


def _literal(value: float) -> str:
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _children(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"{path}.{key}" if path else key, child) for key, child in value.items()]
    if isinstance(value, list):
        return [(f"{path}[{i}]", child) for i, child in enumerate(value)]
    return []
