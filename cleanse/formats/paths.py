"""Paths to a string in a record, ``messages[2].content[0].text``, and putting another string there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from cleanse.formats.jsonwalk import walk_json
from cleanse.formats.leaves import is_json, is_list

Step = str | int

_STEP = re.compile(r'\.?([A-Za-z0-9_-]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')


def parse_path(field: str) -> list[Step]:
    """The keys and indices of a path. Raises ValueError where it is not one."""
    steps: list[Step] = []
    at = 0
    while at < len(field):
        found = _STEP.match(field, at)
        if found is None:
            raise ValueError(f"{field!r} is not a path to a field: unexpected text at character {at}")
        key, index, quoted = found.groups()
        steps.append(int(index) if index else orjson.loads(quoted) if quoted else key)
        at = found.end()
    return steps


def get_text(row: Mapping[str, Any], field: str, schema: pa.Schema | None = None) -> Any:
    """The value at a path; ``schema`` as for ``replace_text``.

    Raises KeyError, IndexError or TypeError where the path leads nowhere.
    """
    value: Any = row
    kind = None if schema is None else pa.struct(schema)
    for step in parse_path(field):
        if isinstance(value, str):
            value, kind = orjson.loads(value), None
        value, kind = value[step], _below(kind, step)
    return walk_json(value) if kind is not None and is_json(kind) and isinstance(value, str) else value


def replace_text(row: dict[str, Any], field: str, new: str, schema: pa.Schema | None = None) -> dict[str, Any]:
    """A copy of ``row`` with the string at ``field`` replaced; everything off the path is shared, not copied.

    Where the path leads through a string, that string is JSON text and stays so. ``schema`` tells which columns
    hold JSON text (Arrow's json type): there a path may also end at the top of the JSON text.

    Raises:
        ValueError: ``field`` is not a path.
        KeyError, IndexError, TypeError: the path leads nowhere in this row.
    """
    kind = None if schema is None else pa.struct(schema)
    changed: dict[str, Any] = _replaced(row, parse_path(field), new, kind)
    return changed


def _replaced(value: Any, steps: list[Step], new: str, kind: pa.DataType | None) -> Any:
    if (kind is not None and is_json(kind)) or (steps and isinstance(value, str)):
        return orjson.dumps(_replaced(walk_json(value), steps, new, None)).decode()
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    inner = value[step]  # raises where the path leads nowhere
    copy = list(value) if isinstance(value, (list, tuple)) else dict(value)
    copy[step] = _replaced(inner, rest, new, _below(kind, step))  # type: ignore[index]
    return copy


def _below(kind: pa.DataType | None, step: Step) -> pa.DataType | None:
    if kind is None:
        return None
    if pa.types.is_struct(kind):
        return kind.field(step).type
    return kind.value_type if is_list(kind) else None
