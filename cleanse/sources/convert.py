"""Columns of typed files made to fit the schema of all inputs together."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.records import ReadEvent
from cleanse.sources.coerce import coerce_value
from cleanse.sources.decide import Target, decide
from cleanse.sources.types import Types


class Conformer:
    """Gives batches the schema of the merged types; in pass 1 (no types yet) it leaves them alone."""

    def __init__(self, types: Types | None) -> None:
        self.learning = types is None
        self.target = decide(types) if types is not None else None
        self.schema = types.schema() if types is not None else None

    def batch(self, batch: pa.RecordBatch, rows: NDArray[np.int64], events: list[ReadEvent]) -> pa.RecordBatch:
        """The batch with exactly the schema; MIXED_TYPE events for values of an unusual kind are added."""
        if self.target is None:
            return batch
        columns = []
        for target in self.target.fields:
            at = batch.schema.get_field_index(target.name)
            if at < 0:
                columns.append(pa.nulls(batch.num_rows, target.type))
            else:
                columns.append(convert(batch.column(at), target, rows, events))
        if not columns and self.schema is not None:  # from no arrays a batch would have no rows
            return batch.replace_schema_metadata(self.schema.metadata)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def convert(array: pa.Array, target: Target, rows: NDArray[np.int64], events: list[ReadEvent]) -> pa.Array:
    """One column in its target's type. Values that have no place there become their JSON text."""
    if array.type == target.type and target.usual is None:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target.type)
    if not target.is_mixed:
        whole = _cast(array, target.type)
        if whole is not None:
            return whole
    values = []
    for value, row in zip(array.to_pylist(), rows.tolist(), strict=True):
        values.append(coerce_value(plain(value), target, target.name, row, events))
    return pa.array(values, target.plain).cast(target.type)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The array in another type that holds its values exactly, or None."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _cast_struct(array, kind)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        values = _cast(array.flatten(), kind.value_type)
        if values is None:
            return None
        lengths = np.asarray(array.value_lengths().fill_null(0))
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=array.is_null())
    try:
        return array.cast(kind, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _cast_struct(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    columns = dict(zip([child.name for child in array.type], array.flatten(), strict=True))
    made = []
    for child in kind:
        column = columns.get(child.name)
        made.append(pa.nulls(len(array), child.type) if column is None else _cast(column, child.type))
    if any(column is None for column in made):
        return None
    return pa.StructArray.from_arrays(made, fields=list(kind), mask=array.is_null())


def plain(value: Any) -> Any:
    """A value as JSON knows it: bytes as base64, dates and decimals as their text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
