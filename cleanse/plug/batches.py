"""What pipelines hand over, in whatever form, as a block of records, and back again in that form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cleanse.blocks import RecordBlock
from cleanse.errors import UsageError
from cleanse.formats import replace_text
from cleanse.mending import array_of
from cleanse.sources import ReadOptions
from cleanse.sources.memory import block_of_records, block_of_table


@dataclass(frozen=True)
class Batch:
    """Records as they came (an Arrow table, or columns of Python values), and as a block."""

    table: pa.Table | None
    columns: Mapping[str, Sequence[Any]]
    n_records: int
    block: RecordBlock

    @property
    def names(self) -> list[str]:
        """The columns that came."""
        return list(self.table.column_names if self.table is not None else self.columns)

    def with_columns(self, added: pa.Table) -> pa.Table | dict[str, list[Any]]:
        """The records with further columns: a whole table for a table, only the new columns for columns.

        That is what ``datasets.map`` merges with its input in either case; a table keeps the types of columns
        that happen to be empty in the first batch.
        """
        if self.table is None:
            return {name: added.column(name).to_pylist() for name in added.column_names}
        table = self.table
        for field, column in zip(added.schema, added.columns, strict=True):
            table = table.append_column(field, column)
        return table

    def with_texts(self, edits: Mapping[int, Mapping[str, str]]) -> pa.Table | dict[str, list[Any]]:
        """The records with some strings replaced: position -> field -> new text."""
        if self.table is not None:
            return _edited_table(self.table, edits)
        columns = {name: list(values) for name, values in self.columns.items()}
        for position, fields in edits.items():
            row = {name: values[position] for name, values in columns.items()}
            for field, text in fields.items():
                row = replace_text(row, field, text)
            for name, value in row.items():
                columns[name][position] = value
        return columns


def batch_of(given: Any, options: ReadOptions) -> Batch:
    """The records of an Arrow table, a ``datasets`` batch, a pandas or polars frame, a mapping of columns, or a list.

    Raises UsageError for a single record, or for anything else that is no batch.
    """
    table = _table_of(given)
    if table is not None:
        return Batch(table, {}, table.num_rows, block_of_table(table, options))
    if isinstance(given, (list, tuple)) and all(isinstance(record, Mapping) for record in given):
        given = {name: [record.get(name) for record in given] for name in dict.fromkeys(n for r in given for n in r)}
    if not isinstance(given, Mapping) or type(given).__name__ == "LazyRow":
        raise _no_batch(given)
    columns = {str(name): _values(name, values) for name, values in given.items()}
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise _no_batch(given)
    n_records = lengths.pop() if lengths else 0
    records = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return Batch(None, columns, n_records, block_of_records(records, options))


def _no_batch(given: Any) -> UsageError:
    return UsageError(
        f"expected a batch of records (a mapping of columns, an Arrow table, a frame), got {type(given).__name__} "
        "that is none: pass batched=True to map and filter, and leave input_columns out"
    )


def _table_of(given: Any) -> pa.Table | None:
    """The Arrow table behind a batch, where there is one and it says all."""
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    kind = type(given)
    if kind.__name__ == "LazyBatch" and kind.__module__.startswith("datasets."):
        # Columns that were read or replaced before us are no longer those of the table.
        untouched = set(given.data) == given.keys_to_format == set(given.pa_table.column_names)
        return given.pa_table if untouched else None
    if kind.__name__ == "DataFrame" and kind.__module__.startswith("polars"):
        return given.to_arrow()
    if kind.__name__ == "DataFrame" and kind.__module__.startswith("pandas"):
        return pa.Table.from_pandas(given, preserve_index=False)
    return None


def _values(name: Any, values: Any) -> Sequence[Any]:
    """The values of one column, one per record."""
    if isinstance(values, np.ndarray) or hasattr(values, "tolist"):
        return list(values.tolist())
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        return values
    raise UsageError(
        f"column {name!r} holds one {type(values).__name__}, expected one value per record: "
        "pass batched=True to map and filter"
    )


def _edited_table(table: pa.Table, edits: Mapping[int, Mapping[str, str]]) -> pa.Table:
    positions = np.array(sorted(edits), np.int64)
    rows = table.take(pa.array(positions)).to_pylist()
    changed: dict[str, dict[int, Any]] = {}
    for position, row in zip(positions.tolist(), rows, strict=True):
        new = row
        for field, text in edits[position].items():
            new = replace_text(new, field, text, table.schema)
        for name, value in new.items():
            if value is not row[name]:
                changed.setdefault(name, {})[position] = value
    for name, values in changed.items():
        place = table.schema.get_field_index(name)
        column = table.column(place).combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        order = np.arange(len(column))
        order[list(values)] = len(column) + np.arange(len(values))
        fixed = array_of(list(values.values()), column.type)
        table = table.set_column(
            place, table.schema.field(place), pa.concat_arrays([column, fixed]).take(pa.array(order))
        )
    return table
