"""Makes a record fit the schema of its column targets, and says where that changed or set apart a value."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

from cleanse.records import EventKind, ReadEvent
from cleanse.sources.decide import Target
from cleanse.sources.shown import shown
from cleanse.sources.types import Kind

_KINDS = {str: Kind.STRING, int: Kind.NUMBER, float: Kind.NUMBER, bool: Kind.BOOL, list: Kind.LIST}
_ONE = {
    Kind.STRING: "a string",
    Kind.NUMBER: "a number",
    Kind.BOOL: "true or false",
    Kind.LIST: "a list",
    Kind.OBJECT: "an object",
}
_MANY = {
    Kind.STRING: "strings",
    Kind.NUMBER: "numbers",
    Kind.BOOL: "true or false",
    Kind.LIST: "lists",
    Kind.OBJECT: "objects",
}
_QUOTED = 60  # characters of a value that a message quotes
MAX_EVENTS_PER_RECORD = 8
"""Mixed types named per record: enough to see the pattern, too few to fill a disk with one hostile record."""


def json_text(value: Any) -> str:
    """The JSON text of a value."""
    return dump(value).decode()


def dump(value: Any) -> bytes:
    """A value as one line of JSON; NaN and infinities as the literals that Python writes."""
    made = orjson.dumps(value, default=str)
    if b"null" in made and not _is_finite(value):  # orjson writes null for NaN
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode()
    return made


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list) or all(map(_is_finite, value))


def holds_texts(value: Any, target: Target) -> bool:
    """Whether strings (or nulls) stand wherever the target may change a value: then nothing has to change."""
    if value is None:
        return True
    kind = type(value)
    if target.as_json or target.usual is not None:
        return kind is str
    if kind is dict:
        for below in target.watched:
            child = value.get(below.name)
            if child is not None and not holds_texts(child, below):
                return False
    elif kind is list and target.item is not None and target.item.is_mixed:
        for child in value:
            if not holds_texts(child, target.item):
                return False
    return True


def coerce(value: dict[str, Any], target: Target, row: int, events: list[ReadEvent]) -> dict[str, Any]:
    """The record with JSON text where its target wants text; the same object where nothing had to change.

    Adds a MIXED_TYPE event for values that are not of their path's usual kind.
    """
    before = len(events)
    made = _object(value, target, "", row, events)
    del events[before + MAX_EVENTS_PER_RECORD :]
    return made


def _object(value: dict[str, Any], target: Target, path: str, row: int, events: list[ReadEvent]) -> dict[str, Any]:
    made = value
    for below in target.watched:
        child = value.get(below.name)
        if child is None:
            continue
        new = coerce_value(child, below, f"{path}.{below.name}" if path else below.name, row, events)
        if new is not child:
            if made is value:
                made = dict(value)
            made[below.name] = new
    return made


def coerce_value(value: Any, target: Target, path: str, row: int, events: list[ReadEvent]) -> Any:
    """One value in place of its target; see ``coerce``."""
    if value is None:
        return None
    kind = _KINDS.get(type(value), Kind.OBJECT)
    if target.usual is not None and kind is not target.usual:
        events.append(_event(value, kind, target, path, row))
    if target.as_json:
        return json_text(value)
    if target.usual is Kind.STRING and kind is not Kind.STRING:
        return json_text(value)
    if kind is Kind.OBJECT and target.watched:
        return _object(value, target, path, row, events)
    if kind is Kind.LIST and target.item is not None and target.item.is_mixed:
        made = [coerce_value(v, target.item, f"{path}[{i}]", row, events) for i, v in enumerate(value)]
        return made if any(a is not b for a, b in zip(made, value, strict=True)) else value
    return value


def _event(value: Any, kind: Kind, target: Target, path: str, row: int) -> ReadEvent:
    assert target.usual is not None
    text = json_text(value)
    quoted = shown(text, _QUOTED)
    place = shown(path)
    usual = f"{target.n_usual:,} of {target.total:,} values are {_MANY[target.usual]}"
    if target.as_json:
        detail = f"{place}: {_ONE[kind]} where {usual}; the column is kept as JSON"
    else:
        detail = f"{place}: {_ONE[kind]} where {usual}; {quoted} becomes the text {shown(json_text(text), _QUOTED)}"
    return ReadEvent(EventKind.MIXED_TYPE, row, detail, field=place, excerpt=shown(text))
