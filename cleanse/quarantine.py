"""The quarantined records as a table: what they were, why they are here, and their bytes where they had no form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cleanse.records import QUARANTINE_FIELDS, Stray
from cleanse.verdicts import Rows


def schema_for(schema: pa.Schema) -> pa.Schema:
    """The input's columns, nullable (a stray has none of them), and the ``cleanse_*`` columns.

    An input that itself has such columns, say an earlier quarantine, keeps them as ``input_cleanse_*``.
    """
    added = {field.name for field in QUARANTINE_FIELDS}
    fields = [
        field.with_name(f"input_{field.name}" if field.name in added else field.name).with_nullable(True)  # noqa: FBT003 - its one parameter
        for field in schema
    ]
    return pa.schema([*fields, *QUARANTINE_FIELDS])


def build(
    batch: pa.RecordBatch,
    rows: Rows,
    strays: Sequence[Stray],
    *,
    reasons: Sequence[Sequence[str]],
    source: str,
    offset: int,
) -> pa.RecordBatch:
    """Held records and strays of one block, in the order of the input.

    Args:
        batch: the held records that have a form.
        rows: (batch.num_rows,) their numbers in the source.
        strays: the others; ``row`` counts from the start of the shard.
        reasons: for held records and strays together, ascending by row.
        source: the name of the source as the user gave it.
        offset: the number of the shard's first record in the source.
    """
    stray_rows = np.fromiter((stray.row + offset for stray in strays), np.int64, len(strays))
    all_rows = np.concatenate([rows, stray_rows])
    order = np.argsort(all_rows, kind="stable")
    all_rows = all_rows[order]
    take = pa.array(order)
    columns = [_followed_by_nulls(column, len(strays)).take(take) for column in batch.columns]
    raw = pa.array([None] * len(rows) + [stray.raw for stray in strays], pa.large_binary()).take(take)
    schema = schema_for(batch.schema)
    columns += [
        pa.array([f"{source}:{row}" for row in all_rows], pa.string()),
        pa.array([source] * len(all_rows), pa.string()),
        pa.array(all_rows, pa.int64()),
        pa.array([list(found) for found in reasons], pa.list_(pa.string())),
        raw,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _followed_by_nulls(column: pa.Array, n: int) -> pa.Array:
    return pa.concat_arrays([column, pa.nulls(n, column.type)]) if n else column
