"""Reads the records again that a model is asked about, and commits their texts: a worker holds no others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cleanse.atomic import committed
from cleanse.corpus.exchanges import PROMPT_ROLES
from cleanse.engines.job import Job, Report
from cleanse.formats import Format, view
from cleanse.measures import TextBatch
from cleanse.probing.sample import MOST_CHARACTERS
from cleanse.sources import ReadOptions, open_shard
from cleanse.state import unit_path
from cleanse.units import Unit

STAGE = "phrase-texts"
SCHEMA = pa.schema(
    [
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # from the start of the shard
        pa.field("texts", pa.list_(pa.string()), nullable=False),
        pa.field("asks", pa.list_(pa.bool_()), nullable=False),  # per segment: part of a prompt
        pa.field("supervised", pa.list_(pa.bool_()), nullable=False),
    ]
)


@dataclass(frozen=True)
class TextsTask:
    """All that a worker needs to fetch records of one unit."""

    unit: Unit
    formats: tuple[Format | None, ...]  # one per shard of the unit
    rows: dict[int, tuple[int, ...]]  # shard -> wanted rows
    read: ReadOptions
    folder: Path


def fetching(task: TextsTask) -> Job:
    """The job of fetching records of one unit."""
    path = unit_path(task.folder, STAGE, task.unit.index, ".parquet")
    return Job(fetch_unit, task, str(task.unit), writes=(path,))


def fetch_unit(task: TextsTask, report: Report) -> None:
    """Commits the wanted records of one unit as a table of ``SCHEMA``, in reading order."""
    parts = [SCHEMA.empty_table()]
    for shard, fmt in zip(task.unit.shards, task.formats, strict=True):
        wanted = np.array(task.rows.get(shard.index, ()), np.int64)
        if fmt is None or not len(wanted):
            continue
        for block in open_shard(shard, task.read):
            at = np.flatnonzero(np.isin(block.rows, wanted))
            if len(at):
                parts.append(_table(view(fmt, block.batch).texts, at, shard.index, block.rows[at]))
            report(block.n_bytes, block.batch.num_rows + len(block.strays), 0)
    with committed(unit_path(task.folder, STAGE, task.unit.index, ".parquet")) as temporary:
        pq.write_table(pa.concat_tables(parts), temporary, compression="zstd")


def _table(texts: TextBatch, at: NDArray[np.int64], shard: int, rows: NDArray[np.int64]) -> pa.Table:
    asks = np.isin(texts.role, PROMPT_ROLES)
    spans = [slice(*np.searchsorted(texts.record, (record, record + 1))) for record in at]
    return pa.table(
        {
            "shard": pa.array(np.full(len(at), shard, np.int32)),
            "row": pa.array(rows),
            "texts": [[texts.text(i)[:MOST_CHARACTERS] for i in range(s.start, s.stop)] for s in spans],
            "asks": [asks[s].tolist() for s in spans],
            "supervised": [texts.supervised[s].tolist() for s in spans],
        },
        schema=SCHEMA,
    )
