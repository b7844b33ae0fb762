"""An output folder's tables with some quarantined records in clean/: streamed, and linked where nothing changes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cleanse import findings
from cleanse.atomic import read_json, write_json
from cleanse.json_lines import lines
from cleanse.mending import Mended
from cleanse.records import FINDINGS_SCHEMA, QUARANTINE_FIELDS, Finding

Places = NDArray[np.int64]


def batches(folder: Path) -> Iterator[pa.RecordBatch]:
    """The record batches of a dataset folder, memory-mapped, one at a time."""
    for file in arrow_files(folder):
        yield from _file_batches(file)


def arrow_files(folder: Path) -> list[Path]:
    """The Arrow files of a dataset folder, in order."""
    return [folder / part["filename"] for part in read_json(folder / "state.json")["_data_files"]]


def schema_of(folder: Path) -> pa.Schema:
    """The schema of a dataset folder."""
    with pa.memory_map(str(arrow_files(folder)[0])) as mapped, pa.ipc.open_stream(mapped) as stream:
        return stream.schema


def _file_batches(file: Path) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as stream:
        yield from stream


def clean_records(quarantine: Path, places: Places, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Some records of the quarantine, without what was added to them: batches of the clean schema, in order."""
    added = len(QUARANTINE_FIELDS)
    for batch, mine in _with_places(batches(quarantine), places):
        if len(mine):
            chosen = batch.take(pa.array(mine))
            yield pa.RecordBatch.from_arrays(chosen.columns[: chosen.num_columns - added], schema=schema)


def without(batch_stream: Iterator[pa.RecordBatch], places: Places) -> Iterator[pa.RecordBatch]:
    """The batches without the records at these places."""
    for batch, mine in _with_places(batch_stream, places):
        if len(mine):
            keep = np.ones(batch.num_rows, np.bool_)
            keep[mine] = False
            yield batch.filter(pa.array(keep))
        else:
            yield batch


def _with_places(batch_stream: Iterator[pa.RecordBatch], places: Places) -> Iterator[tuple[pa.RecordBatch, Places]]:
    start = 0
    for batch in batch_stream:
        first, after = np.searchsorted(places, [start, start + batch.num_rows])
        yield batch, places[first:after] - start
        start += batch.num_rows


def rewrite_clean(folder: Path, target: Path, before: Places, added: Iterator[pa.RecordBatch], mark: str) -> None:
    """Writes the dataset at ``folder`` to ``target`` with records put in.

    Args:
        folder: OUT/clean.
        target: a new folder.
        before: (added,) how many records of ``folder`` stand before each added one, ascending.
        added: the records.
        mark: what tells this change from others: goes into the dataset's fingerprint.
    """
    target.mkdir(parents=True)
    files, start = arrow_files(folder), 0
    feed = _Feed(added)
    for number, file in enumerate(files):
        n_rows = sum(batch.num_rows for batch in _file_batches(file))
        is_last = number == len(files) - 1
        first = int(np.searchsorted(before, start))
        after = len(before) if is_last else int(np.searchsorted(before, start + n_rows))
        if first == after:
            _link(file, target / file.name)
        else:
            _write(target / file.name, schema_of(folder), _joined(file, before[first:after] - start, feed))
        start += n_rows
    _copy_description(folder, target, mark)


def rewrite_quarantine(folder: Path, target: Path, places: Places, mark: str) -> None:
    """Writes the dataset at ``folder`` to ``target`` without the records at these places."""
    target.mkdir(parents=True)
    start = 0
    for file in arrow_files(folder):
        n_rows = sum(batch.num_rows for batch in _file_batches(file))
        first, after = np.searchsorted(places, [start, start + n_rows])
        if first == after:
            _link(file, target / file.name)
        else:
            _write(target / file.name, schema_of(folder), without(_file_batches(file), places[first:after] - start))
        start += n_rows
    _copy_description(folder, target, mark)


def _joined(file: Path, before: Places, feed: _Feed) -> Iterator[pa.RecordBatch]:
    """The batches of a file with records put in at ``before`` (within the file, ascending)."""
    start = done = 0
    for batch in _file_batches(file):
        cut = 0
        while done < len(before) and before[done] < start + batch.num_rows:
            at = int(before[done]) - start
            n_here = int(np.searchsorted(before, before[done], "right")) - done
            yield batch.slice(cut, at - cut)
            yield from feed.take(n_here)
            cut, done = at, done + n_here
        yield batch.slice(cut)
        start += batch.num_rows
    yield from feed.take(len(before) - done)


class _Feed:
    """Gives out records in order, a number at a time."""

    def __init__(self, batch_stream: Iterator[pa.RecordBatch]) -> None:
        self._batches = batch_stream
        self._held: pa.RecordBatch | None = None

    def take(self, n: int) -> Iterator[pa.RecordBatch]:
        """The next ``n`` records."""
        while n:
            if self._held is None or self._held.num_rows == 0:
                self._held = next(self._batches)
            given = self._held.slice(0, n)
            self._held = self._held.slice(given.num_rows)
            n -= given.num_rows
            yield given


def _write(path: Path, schema: pa.Schema, stream: Iterator[pa.RecordBatch]) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for batch in stream:
            if batch.num_rows:
                writer.write_batch(batch)


def _link(file: Path, target: Path) -> None:
    """The same file under another name; a copy where the disk knows no links."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def _copy_description(folder: Path, target: Path, mark: str) -> None:
    state = read_json(folder / "state.json")
    fingerprint = hashlib.sha256(f"{state['_fingerprint']} {mark}".encode()).hexdigest()[:16]
    write_json(target / "state.json", {**state, "_fingerprint": fingerprint})
    shutil.copyfile(folder / "dataset_info.json", target / "dataset_info.json")


def rewrite_lines(path: Path, target: Path, before: Places, added: Iterator[pa.RecordBatch]) -> None:
    """Writes clean.jsonl to ``target`` with records put in, written from their values."""
    texts = chain.from_iterable(_json_lines(batch) for batch in added)
    with path.open("rb") as old, target.open("wb") as new:
        done = 0
        for n_lines, line in enumerate(old):
            while done < len(before) and before[done] <= n_lines:
                new.write(next(texts))
                done += 1
            new.write(line)
        new.writelines(texts)


def _json_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    for chunk in lines(Mended(batch, {}), np.ones(batch.num_rows, np.bool_), None):
        yield from chunk.splitlines(keepends=True)


def rewrite_findings(path: Path, target: Path, notes: Sequence[Finding]) -> None:
    """Writes findings.parquet to ``target`` with a note before the first finding of each record it speaks of."""
    waiting: dict[tuple[str, int], list[Finding]] = {}
    for note in notes:
        waiting.setdefault((note.source, note.row), []).append(note)
    with pq.ParquetFile(path) as old, pq.ParquetWriter(target, FINDINGS_SCHEMA, compression="zstd") as new:
        for group in range(old.num_row_groups):
            new.write_table(_with_notes(old.read_row_group(group), waiting))


def _with_notes(table: pa.Table, waiting: dict[tuple[str, int], list[Finding]]) -> pa.Table:
    rows = table.column("row").to_numpy()
    wanted = np.flatnonzero(np.isin(rows, np.array([row for _, row in waiting], np.int64)))
    pieces, cut = [], 0
    for place, source in zip(wanted.tolist(), table.column("source").take(pa.array(wanted)).to_pylist(), strict=True):
        notes = waiting.pop((source, int(rows[place])), None)
        if notes is not None:
            pieces += [table.slice(cut, place - cut), findings.table(notes)]
            cut = place
    return pa.concat_tables([*pieces, table.slice(cut)]).cast(FINDINGS_SCHEMA)
