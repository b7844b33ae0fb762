"""Says what is wrong with one JSON text that the fast parser refused, or that it is right after all."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

import orjson

from cleanse.records import EventKind
from cleanse.sources.charsets import likely
from cleanse.sources.shown import excerpt, shown

_SURROGATE = re.compile("[\ud800-\udfff]")
_MIN_INT, _MAX_INT = -(1 << 63), (1 << 64) - 1
_SAFE = 1 << 53


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


class _Refused(Exception):
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
    try:
        words = ""
        value = orjson.loads(raw)
        position = 0
    except orjson.JSONDecodeError as error:
        words, position = error.msg, error.pos
        if last and "end of data" in words:
            return _wrong(EventKind.TRUNCATED, f"the file ends inside a value: {words}", raw, len(raw))
    else:
        if not isinstance(value, dict):
            return _wrong(EventKind.NOT_AN_OBJECT, f"expected an object, found {_kind(value)}", raw, 0)
    return _strict(raw, words, position)


def _strict(raw: bytes, words: str, position: int) -> Verdict:
    """Reads with the standard parser: slower, but it shows what it reads to hooks. ``words``: why orjson refused."""
    verdict = Verdict()
    exotic = False

    def constant(literal: str) -> float:
        nonlocal exotic
        exotic = True
        return float(literal)

    def integer(digits: str) -> int:
        number = int(digits) if len(digits) <= 21 else _MAX_INT + 1  # noqa: PLR2004 - sign and 20 digits
        if not _MIN_INT <= number <= _MAX_INT:
            raise _Refused(EventKind.NUMBER_OUT_OF_RANGE, f"{shown(digits, 40)} does not fit 64 bits")
        verdict.has_big |= abs(number) > _SAFE
        return number

    def real(literal: str) -> float:
        number = float(literal)
        if number in (float("inf"), float("-inf")):
            raise _Refused(EventKind.NUMBER_OUT_OF_RANGE, f"{shown(literal, 40)} does not fit a double")
        return number

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) != len(items):
            keys = [key for key, _ in items]
            twice = next(key for key in made if keys.count(key) > 1)
            raise _Refused(EventKind.DUPLICATE_KEY, f"the key {shown(twice, 60)!r} stands twice in one object")
        return made

    try:
        value = json.loads(raw, parse_constant=constant, parse_int=integer, parse_float=real, object_pairs_hook=pairs)
    except _Refused as refused:
        return _wrong(refused.kind, refused.detail, raw, 0)
    except RecursionError:
        return _wrong(EventKind.UNPARSEABLE, "nested too deeply to be a record", raw, 0)
    except ValueError as error:
        said = words or str(error)
        return _wrong(EventKind.UNPARSEABLE, f"{said} at character {position}", raw, position)
    if not isinstance(value, dict):
        return _wrong(EventKind.NOT_AN_OBJECT, f"expected an object, found {_kind(value)}", raw, 0)
    surrogate = _find_surrogate(value, "")
    if surrogate is not None:
        path, at, text = surrogate
        said = f"{shown(path, 80)}: lone surrogate U+{ord(text[at]):04X} at character {at}"
        around = text[max(0, at - 60) : at + 60]
        return Verdict(EventKind.LONE_SURROGATE, said, {}, shown(path), at, shown(around))
    if exotic:
        _find_odd(value, "", verdict.odd_numbers)
    elif words:
        return _wrong(EventKind.UNPARSEABLE, f"{words} at character {position}", raw, position)
    verdict.value = value
    return verdict


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
