"""Conversations inside a column: one row per turn, and the strings that each turn holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cleanse.formats.jsonwalk import Leaf, key_path, walk, walk_json
from cleanse.formats.leaves import (
    NOTHING,
    Index,
    Leaves,
    children,
    from_python,
    is_json,
    is_list,
    is_string,
    merge,
    missing,
    text_leaves,
    unlist,
)
from cleanse.formats.roles import roles_of

ROLE_KEYS = ("role", "from", "speaker")
TEXT_KEYS = ("content", "value", "text")
SAID_KEYS = ("reasoning_content", "reasoning", "thinking", *TEXT_KEYS)  # in the order that templates write them
CALL_KEYS = ("tool_calls", "function_call")
WEIGHT_KEYS = ("weight", "loss", "train")
"""Per-turn switches: OpenAI's ``weight``, ms-swift's ``loss``, axolotl's ``train``. 0 or false: not trained on."""


@dataclass(frozen=True)
class Turns:
    """Turns of many records, laid end to end in reading order."""

    record: Index  # (turns,) ascending
    role: NDArray[np.uint8]  # (turns,) values of Role, by the name in the data
    name: pa.LargeStringArray  # (turns,) the role as written; null where there is none
    column: NDArray[np.uint8]  # (turns,) index into ``columns``: a preference pair has two conversations
    columns: tuple[str, ...]
    calls: NDArray[np.bool_]  # (turns,) whether the turn calls a tool
    weighted: NDArray[np.bool_]  # (turns,) False where the turn's own switch turns training off

    def __len__(self) -> int:
        return len(self.record)


def is_turn(kind: pa.DataType) -> bool:
    """Whether a struct of this type is one turn: a speaker, and something said."""
    if not pa.types.is_struct(kind):
        return False
    keys = {field.name for field in kind}
    return bool(keys.intersection(ROLE_KEYS)) and bool(keys.intersection((*TEXT_KEYS, *CALL_KEYS)))


def is_turn_value(value: Any) -> bool:
    """The same question about a Python value."""
    return (
        isinstance(value, dict)
        and any(k in value for k in ROLE_KEYS)
        and any(k in value for k in (*TEXT_KEYS, *CALL_KEYS))
    )


def turn_leaves(array: pa.Array, column: str, *, from_text: bool = False) -> tuple[Leaves, Index, Turns] | None:
    """The turns in a column, their strings by row, and the turn of each string.

    None where the column's type holds no turns. With ``from_text`` a plain string is read as JSON text.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return turn_leaves(array.dictionary_decode(), column, from_text=from_text)
    if is_json(kind) or (from_text and is_string(kind)):
        texts = array.storage if is_json(kind) else array
        return _from_values([walk_json(text) for text in texts.to_pylist()], column)
    if is_turn(kind):
        valid = np.flatnonzero(np.asarray(array.is_valid()))
        return _typed(array.take(pa.array(valid)), valid, column, lambda _: "")
    if is_list(kind) and is_turn(kind.value_type):
        items, rows, name = unlist(array)
        return _typed(items, rows, column, name)
    if is_list(kind) and is_json(kind.value_type):
        items, rows, _ = unlist(array)
        values: list[Any] = [[] for _ in range(len(array))]
        for row, text in zip(rows.tolist(), items.storage.to_pylist(), strict=True):
            values[row].append(walk_json(text))
        return _from_values(values, column)
    return None


def _typed(items: pa.StructArray, rows: Index, column: str, name: Any) -> tuple[Leaves, Index, Turns]:
    fields = children(items)
    n = len(items)
    every = np.arange(n)
    roles = _coalesce([fields[k] for k in ROLE_KEYS if k in fields])
    calls, streams = np.zeros(n, np.bool_), [NOTHING]
    for key in CALL_KEYS:
        if key in fields:
            calls |= _has_items(fields[key])
    for key in (*SAID_KEYS, *CALL_KEYS):
        if key not in fields:
            continue
        found = _call_leaves(fields[key]) if key in CALL_KEYS else text_leaves(fields[key])
        path = key_path(key)
        found = found.moved(every, lambda _, path=path: path)  # type: ignore[misc]
        optional = calls[found.parent] if key in TEXT_KEYS else np.ones(len(found), np.bool_)
        if optional.any():  # templates send "" beside a tool call, and leave empty reasoning out
            found = found.take(np.flatnonzero(~optional | (np.asarray(pc.binary_length(found.texts)) > 0)))
        streams.append(found)
    said, _, _ = merge(streams)
    silent = missing(said.parent, n)
    silent = silent[~calls[silent]]
    main = key_path(next((k for k in TEXT_KEYS if k in fields), TEXT_KEYS[0]))
    empty = Leaves(pa.nulls(len(silent), pa.large_string()), silent, lambda _: main)
    said, _, _ = merge([said, empty])
    weighted = np.ones(n, np.bool_)
    for key in WEIGHT_KEYS:
        if key in fields and _is_switch(fields[key].type):
            weighted &= np.asarray(pc.cast(fields[key], pa.float64()).fill_null(1.0)) != 0
    turns = Turns(rows, roles_of(roles), roles, np.zeros(n, np.uint8), (column,), calls, weighted)
    of_turn = said.parent
    return said.moved(rows, name), of_turn, turns


def _from_values(values: Sequence[Any], column: str) -> tuple[Leaves, Index, Turns]:
    """Turns from Python values: a list of turns, one turn, or anything else (one turn without a role)."""
    found: list[list[Leaf]] = []
    of_turn: list[int] = []
    rows: list[int] = []
    names: list[str | None] = []
    calls, weighted = [], []
    for row, value in enumerate(values):
        here: list[Leaf] = []
        many = isinstance(value, list)
        for i, turn in enumerate(value if many else [] if value is None else [value]):
            said = _said(turn)
            here += [((f"[{i}]" if many else "") + path, text) for path, text in said]
            of_turn += [len(rows)] * len(said)
            rows.append(row)
            a_turn = is_turn_value(turn)
            role = next((turn[k] for k in ROLE_KEYS if turn.get(k) is not None), None) if a_turn else None
            names.append(role if role is None or isinstance(role, str) else str(role))
            calls.append(a_turn and any(turn.get(k) for k in CALL_KEYS))
            weighted.append(not (a_turn and any(turn.get(k, 1) in (0, False) for k in WEIGHT_KEYS)))
        found.append(here)
    roles = pa.array(names, pa.large_string())
    record = np.array(rows, np.int64)
    turns = Turns(
        record,
        roles_of(roles),
        roles,
        np.zeros(len(rows), np.uint8),
        (column,),
        np.array(calls, np.bool_),
        np.array(weighted, np.bool_),
    )
    return from_python(found), np.array(of_turn, np.int64), turns


def _said(turn: Any) -> list[Leaf | Any]:
    if not is_turn_value(turn):
        return walk(turn)
    found: list[Any] = []
    calls = any(turn.get(k) for k in CALL_KEYS)
    for key in (*SAID_KEYS, *CALL_KEYS):
        value = turn.get(key)
        leaves = _called(value) if key in CALL_KEYS else walk(value)
        optional = calls or key not in TEXT_KEYS
        found += [(key_path(key) + path, text) for path, text in leaves if text or not optional]
    if not found and not calls:
        found.append((key_path(next((k for k in TEXT_KEYS if k in turn), TEXT_KEYS[0])), None))
    return found


def _call_leaves(array: pa.Array) -> Leaves:
    """Names and arguments of tool calls; identifiers and types are not text."""
    if is_list(array.type):
        items, rows, name = unlist(array)
        return _call_leaves(items).moved(rows, name)
    if is_json(array.type):
        return from_python([_called(walk_json(text)) for text in array.storage.to_pylist()])
    if not pa.types.is_struct(array.type):
        return text_leaves(array, "call")
    fields, every, streams = children(array), np.arange(len(array)), []
    for key in ("function", "name", "arguments"):
        if key in fields:
            found = (_call_leaves if key == "function" else _arguments)(fields[key])
            streams.append(found.moved(every, lambda _, key=key: key_path(key)))  # type: ignore[misc]
    return merge(streams)[0]


def _arguments(array: pa.Array) -> Leaves:
    found = text_leaves(array, "call")
    return found.take(np.flatnonzero(np.asarray(pc.binary_length(found.texts)) > 0))


def _called(value: Any) -> list[Leaf]:
    if isinstance(value, list):
        return [(f"[{i}]{path}", text) for i, call in enumerate(value) for path, text in _called(call)]
    if not isinstance(value, dict):
        return walk(value, "call")
    found = []
    for key in ("function", "name", "arguments"):
        leaves = _called(value.get(key)) if key == "function" else walk(value.get(key), "call")
        found += [(key_path(key) + path, text) for path, text in leaves if text]
    return found


def _coalesce(arrays: list[pa.Array]) -> pa.LargeStringArray:
    """The first present role of each turn as text."""
    texts = []
    for array in arrays:
        flat = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        plain = is_string(flat.type) or pa.types.is_null(flat.type) or pa.types.is_integer(flat.type)
        texts.append(
            flat.cast(pa.large_string())
            if plain
            else pa.array([None if v is None else str(v) for v in flat.to_pylist()], pa.large_string())
        )
    return texts[0] if len(texts) == 1 else pc.coalesce(*texts)


def _has_items(array: pa.Array) -> NDArray[np.bool_]:
    if is_list(array.type):
        return np.asarray(pc.fill_null(pc.greater(pc.list_value_length(array), 0), fill_value=False))
    if is_json(array.type):
        return np.array([bool(walk_json(text)) for text in array.storage.to_pylist()], np.bool_)
    if is_string(array.type):
        return np.asarray(pc.fill_null(pc.greater(pc.binary_length(array), 0), fill_value=False))
    return np.asarray(array.is_valid())


def _is_switch(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))
