"""Which records are replayed: every suspect, and controls drawn by a hash of their content.

A hash draw needs no order and no random state: the same records are chosen whatever the shards, the workers and the
engine. It is simple random sampling over distinct contents, so length and script appear in their natural shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from cleanse import inspection
from cleanse.atomic import committed
from cleanse.blocks import RecordBlock
from cleanse.engines.job import Job, Report
from cleanse.findings import Cursor
from cleanse.formats import Format, view
from cleanse.measures import TextBatch
from cleanse.records import Action
from cleanse.rule_evaluation import SCRIPT_MEASURE, measured, unpack_script
from cleanse.sources import ReadOptions, open_shard
from cleanse.state import RunState, unit_path
from cleanse.units import Unit

STAGE = "probe-sample"
SEED = 0x636C65616E7365  # any fixed number: a record's draw must be the same in every scan
MOST_CHARACTERS = 16_384  # of one segment: far more than the windows that are replayed can hold
_WHOLE = 1 << 64

SCHEMA = pa.schema(
    [
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # from the start of the shard
        pa.field("suspect", pa.bool_(), nullable=False),
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("script", pa.string(), nullable=False),
        pa.field("texts", pa.list_(pa.string()), nullable=False),
        pa.field("supervised", pa.list_(pa.bool_()), nullable=False),
    ]
)


@dataclass(frozen=True)
class SampleTask:
    """All that a worker needs to draw from one unit."""

    unit: Unit
    formats: tuple[Format | None, ...]
    found: tuple[str, ...]  # stages whose findings say who is suspected
    share: float  # of unsuspected records drawn as controls; 1 for all
    packs: tuple[str, ...]
    rules_fingerprint: str
    read: ReadOptions
    folder: Path

    @property
    def findings(self) -> tuple[Path, ...]:
        """What those stages committed for the unit."""
        return tuple(unit_path(self.folder, stage, self.unit.index, ".parquet") for stage in self.found)


def sampling(task: SampleTask) -> Job:
    """The job of drawing from one unit."""
    path = unit_path(task.folder, STAGE, task.unit.index, ".parquet")
    return Job(sample_unit, task, str(task.unit), reads=task.findings, writes=(path,))


def sample_unit(task: SampleTask, report: Report) -> None:
    """Reads one unit again and commits the texts of its suspects and of the controls drawn from it."""
    inspection.rules_of(task.packs, task.rules_fingerprint)  # registers the measures that tell the script
    target = unit_path(task.folder, STAGE, task.unit.index, ".parquet")
    with ExitStack() as stack:
        cursors = [Cursor(path) for path in task.findings]
        for cursor in cursors:
            stack.callback(cursor.close)
        writer = pq.ParquetWriter(stack.enter_context(committed(target)), SCHEMA, compression="zstd")
        stack.callback(writer.close)
        for shard, fmt in zip(task.unit.shards, task.formats, strict=True):
            for block in open_shard(shard, task.read):
                last = max(block.rows[-1] if len(block.rows) else -1, max((s.row for s in block.strays), default=-1))
                found = pa.concat_tables([cursor.take(shard.index, int(last)) for cursor in cursors])
                if fmt is not None and block.batch.num_rows:
                    writer.write_table(draw(block, fmt, found, shard.index, task.share))
                report(block.n_bytes, block.batch.num_rows + len(block.strays), 0)


def draw(block: RecordBlock, fmt: Format, found: pa.Table, shard: int, share: float) -> pa.Table:
    """The suspects of a block, and a share of its unsuspected records, as a table of ``SCHEMA``."""
    actions = found.column("action")
    rows = found.column("row").to_numpy()
    doubtful, rejected, mended = (_rows(rows, actions, a) for a in (Action.SUSPECT, Action.REJECT, Action.REPAIR))
    # A record that is rejected anyway needs no witness, and one that is mended is no example of clean text.
    suspect = np.isin(block.rows, doubtful) & ~np.isin(block.rows, rejected)
    plain = ~np.isin(block.rows, np.concatenate([doubtful, rejected, mended]))
    texts = view(fmt, block.batch).texts
    if share < 1 and not suspect.any() and len(texts) == 0:
        return SCHEMA.empty_table()
    hashes = content_hashes(texts)
    drawn = suspect | (plain & below(hashes, share))
    chosen = np.flatnonzero(drawn)
    script = measured(SCRIPT_MEASURE, texts)
    first, after = (np.searchsorted(texts.record, chosen, side) for side in ("left", "right"))
    return pa.table(
        {
            "shard": pa.array(np.full(len(chosen), shard, np.int32)),
            "row": pa.array(block.rows[chosen]),
            "suspect": pa.array(suspect[chosen]),
            "hash": pa.array(hashes[chosen]),
            "script": [_script(texts, script, a, b) for a, b in zip(first, after, strict=True)],
            "texts": [
                [texts.text(i)[:MOST_CHARACTERS] for i in range(a, b)] for a, b in zip(first, after, strict=True)
            ],
            "supervised": [texts.supervised[a:b].tolist() for a, b in zip(first, after, strict=True)],
        },
        schema=SCHEMA,
    )


def _rows(rows: NDArray[np.int64], actions: pa.ChunkedArray, action: Action) -> NDArray[np.int64]:
    return np.unique(rows[pc.equal(actions, action.value).to_numpy(zero_copy_only=False)])


def content_hashes(texts: TextBatch) -> NDArray[np.uint64]:
    """A hash of each record's segments, roles and their limits, (records,): 64 bits of xxh3."""
    bounds = np.searchsorted(texts.record, np.arange(texts.n_records + 1))
    offsets, roles, data = texts.offsets, texts.role, texts.data.tobytes()
    hashes = np.empty(texts.n_records, np.uint64)
    for record, (first, after) in enumerate(pairwise(bounds)):
        state = xxhash.xxh3_64(data[offsets[first] : offsets[after]], seed=SEED)
        lengths = np.diff(offsets[first : after + 1])
        state.update(lengths.tobytes() + roles[first:after].tobytes())
        hashes[record] = state.intdigest()
    return hashes


def below(hashes: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """Which hashes lie in the lowest ``share`` of all possible ones."""
    if share >= 1:
        return np.ones(len(hashes), np.bool_)
    return hashes < np.uint64(int(share * _WHOLE))


def _script(texts: TextBatch, script: NDArray[np.float64], first: int, after: int) -> str:
    """The script of the record's longest trained segment, or of its longest one."""
    if first == after:
        return "Zyyy"
    lengths = np.diff(texts.offsets[first : after + 1]) * (1 + 1_000_000 * texts.supervised[first:after])
    return unpack_script(float(script[first + int(np.argmax(lengths))]))


def read_samples(folder: Path, n_units: int, rows_at_a_time: int) -> Iterator[pa.Table]:
    """The drawn records of all units in reading order, some at a time."""
    for unit in range(n_units):
        for batch in pq.ParquetFile(unit_path(folder, STAGE, unit, ".parquet")).iter_batches(rows_at_a_time):
            yield pa.Table.from_batches([batch])


def count_suspects(state: RunState, units: Sequence[Unit], stages: Sequence[str]) -> int:
    """Records of all units that ask for a witness, by what these stages found."""
    total = 0
    for unit in units:
        paths = state.files.each(state.path(stage, unit.index, ".parquet") for stage in stages)
        total += asking(pa.concat_tables(pq.read_table(path, columns=["shard", "row", "action"]) for path in paths))
    return total


def asking(found: pa.Table) -> int:
    """Records that something suspects and nothing rejects, in a table with ``row``, ``action`` and maybe ``shard``."""
    action = found.column("action")
    told = found.append_column("suspected", pc.equal(action, Action.SUSPECT.value))
    told = told.append_column("rejected", pc.equal(action, Action.REJECT.value))
    keys = [name for name in ("shard", "row") if name in found.column_names]
    records = told.group_by(keys).aggregate([("suspected", "any"), ("rejected", "any")])
    asked = pc.and_not(records.column("suspected_any"), records.column("rejected_any"))
    return int(pc.sum(asked).as_py() or 0)
