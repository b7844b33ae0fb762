"""Puts mended text back where it came from, and leaves every other value of the record as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.formats import get_text, replace_text
from cleanse.formats.paths import parse_path
from cleanse.records import Action

Mend = Callable[[str, Sequence[str]], str]
"""(text, rule ids) -> the text after the repairs of these rules; the same text where there is nothing to do."""


@dataclass(frozen=True)
class Wanted:
    """A repair that a finding asks for."""

    position: int  # in the batch
    field: str
    rule: str


@dataclass(frozen=True)
class Mended:
    """A batch after its repairs."""

    batch: pa.RecordBatch
    edits: Mapping[int, Mapping[str, str]]  # position -> field -> new text, only where something changed


def wanted(
    found: pa.Table, rows: NDArray[np.int64], mended: NDArray[np.int64], mends: Callable[[str], bool]
) -> list[Wanted]:
    """The repairs that findings ask for.

    Args:
        found: columns ``row``, ``rule``, ``action``, ``field``.
        rows: (batch.num_rows,) numbers of a batch's records, ascending.
        mended: numbers of the records to mend.
        mends: whether the rule of an id has a repair.
    """
    if len(mended) == 0:
        return []
    mine = np.isin(found.column("row").to_numpy(), mended)
    asked = found.filter(pa.array(mine)).select(["row", "rule", "action", "field"]).to_pylist()
    return [
        Wanted(int(np.searchsorted(rows, ask["row"])), ask["field"], ask["rule"])
        for ask in asked
        if ask["action"] == Action.REPAIR.value and mends(ask["rule"])
    ]


def mend(batch: pa.RecordBatch, wanted: Iterable[Wanted], repair: Mend) -> Mended:
    """Applies repairs to the few records that need them, column by column."""
    by_column: dict[str, dict[int, dict[str, list[str]]]] = {}
    for want in wanted:
        fields = by_column.setdefault(_column_of(want.field), {}).setdefault(want.position, {})
        rules = fields.setdefault(want.field, [])
        if want.rule not in rules:
            rules.append(want.rule)
    edits: dict[int, dict[str, str]] = {}
    for name, rows in by_column.items():
        if name in batch.schema.names:
            batch = _mend_column(batch, name, rows, repair, edits)
    return Mended(batch, edits)


def _column_of(field: str) -> str:
    steps = parse_path(field)
    return str(steps[0]) if steps else ""


def _mend_column(
    batch: pa.RecordBatch,
    name: str,
    rows: Mapping[int, Mapping[str, list[str]]],
    repair: Mend,
    edits: dict[int, dict[str, str]],
) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    column = batch.column(place)
    positions = np.array(sorted(rows), np.int64)
    schema = pa.schema([batch.schema.field(place)])
    values = []
    for position, value in zip(positions.tolist(), column.take(pa.array(positions)).to_pylist(), strict=True):
        row: dict[str, Any] = {name: value}
        for field, rules in rows[position].items():
            old = get_text(row, field, schema)
            if not isinstance(old, str):
                continue  # a number that was measured as its JSON text
            new = repair(old, rules)
            if new != old:
                row = replace_text(row, field, new, schema)
                edits.setdefault(position, {})[field] = new
        values.append(row[name])
    fixed = array_of(values, column.type)
    order = np.arange(batch.num_rows)
    order[positions] = batch.num_rows + np.arange(len(positions))
    mended = pa.concat_arrays([column, fixed]).take(pa.array(order))
    return batch.set_column(place, batch.schema.field(place), mended)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of any type, JSON text inside lists and structs included, which ``pa.array`` alone cannot make."""
    plain = _storage(kind)
    made = pa.array(values, type=plain)
    return made if plain == kind else made.cast(kind)


def _storage(kind: pa.DataType) -> pa.DataType:
    """The type with extension types as what they are stored in."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_struct(kind):
        return pa.struct([child.with_type(_storage(child.type)) for child in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_storage(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_storage(kind.value_type)))
    return kind
