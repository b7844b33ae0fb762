"""Tables of findings: made from events, kept sorted by row, and read back in step with the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cleanse.records import FINDINGS_SCHEMA, Finding

SHARD = pa.field("shard", pa.int32(), nullable=False)
COMMITTED_SCHEMA = pa.schema([SHARD, *FINDINGS_SCHEMA])
"""What stages commit per unit: rows count from the start of their shard, sorted by shard and row."""

_EVERY_ROW = np.iinfo(np.int64).max


def table(findings: Sequence[Finding]) -> pa.Table:
    """Findings as a table of ``FINDINGS_SCHEMA``."""
    columns = zip(*findings, strict=True) if findings else ([] for _ in FINDINGS_SCHEMA)
    arrays = [pa.array(list(values), field.type) for values, field in zip(columns, FINDINGS_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=FINDINGS_SCHEMA)


def merged(tables: Iterable[pa.Table]) -> pa.Table:
    """Several tables as one, by row; findings of one row keep the order of the tables, and of each table."""
    joined = pa.concat_tables([FINDINGS_SCHEMA.empty_table(), *tables])
    rows = joined.column("row").to_numpy()
    if np.all(rows[1:] >= rows[:-1]):
        return joined
    return joined.take(pa.array(np.argsort(rows, kind="stable")))


def moved(findings: pa.Table, offset: int) -> pa.Table:
    """The same findings with ``offset`` added to their rows."""
    place = findings.schema.get_field_index("row")
    return findings.set_column(place, FINDINGS_SCHEMA.field("row"), pc.add(findings.column("row"), offset))


def numbered(findings: pa.Table, shard: int) -> pa.Table:
    """The findings of one shard in the form that stages commit."""
    return findings.add_column(0, SHARD, pa.array(np.full(findings.num_rows, shard, np.int32)))


class Cursor:
    """Walks over a committed table in step with the shards and blocks it speaks of, holding a stretch of it."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        self._batches: Iterator[pa.RecordBatch] = self._file.iter_batches(1 << 14)
        self._held: pa.Table = COMMITTED_SCHEMA.empty_table()

    def take(self, shard: int, last_row: int = _EVERY_ROW) -> pa.Table:
        """The next findings, up to and including ``last_row`` of ``shard``; each is given once."""
        taken = []
        while True:
            shards = self._held.column("shard").to_numpy()
            rows = self._held.column("row").to_numpy()
            ready = int(np.count_nonzero((shards < shard) | ((shards == shard) & (rows <= last_row))))
            taken.append(self._held.slice(0, ready))
            self._held = self._held.slice(ready)
            if self._held.num_rows:
                break
            following = next(self._batches, None)
            if following is None:
                break
            self._held = pa.Table.from_batches([following], COMMITTED_SCHEMA)
        return pa.concat_tables(taken).select(FINDINGS_SCHEMA.names)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
