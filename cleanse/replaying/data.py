"""Finds the rows of a step in the data, whatever the files are, without reading further than the last of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cleanse.blocks import RecordBlock
from cleanse.errors import UsageError
from cleanse.formats import Conversations
from cleanse.replaying.capsule import json_safe
from cleanse.replaying.steps import RowId
from cleanse.sources import Plan, ReadOptions, open_shard, plan

ID_COLUMN = "row_id"
CAPSULE_KEYS = {"row", "record"}  # of the lines in a capsule's rows.jsonl
_HEAD = 100  # records that a format is told from


@dataclass(frozen=True)
class FoundRow:
    """One row as one line of JSON (or the bytes of a line that is none)."""

    id: RowId
    source: str
    number: int  # 0-based record number in its source, as cleanse counts
    line: bytes


@dataclass(frozen=True)
class FoundRows:
    """The rows asked for, in the order of the data, and the first records of each source."""

    rows: tuple[FoundRow, ...]
    heads: dict[str, list[dict[str, Any]]]


@dataclass
class _Wanted:
    """By which name each row is looked for."""

    places: set[int] = field(default_factory=set)  # of the record over all inputs
    named: dict[tuple[str, int], str] = field(default_factory=dict)  # (source, record number) -> id
    values: set[RowId] = field(default_factory=set)  # of the column ``column``
    column: str = ID_COLUMN


def count_rows(inputs: Sequence[str], read: ReadOptions) -> int:
    """Records of the data: the length of the dataset of a trainer that takes them all."""
    with tempfile.TemporaryDirectory() as spool:
        planned = plan(list(inputs), read, Path(spool))
        total = 0
        for shard in planned.shards:
            reader = open_shard(shard, read)
            for _ in reader:
                pass
            total += reader.facts.n_read
    return total


def find_rows(inputs: Sequence[str], wanted: Iterable[RowId], *, positions: bool, read: ReadOptions) -> FoundRows:
    """Find rows by their ids.

    A number is the place of the record over all inputs, blank lines left out: its index in a dataset that was loaded
    from them. Where the data has a ``row_id`` column and ``positions`` is off, it is that column's value. A text is
    ``<source>:<record number>``, as cleanse names records, or a value of the ``row_id`` column. The rows of a capsule
    go by the ids they had.

    Args:
        inputs: as for a scan.
        wanted: the ids.
        positions: numbers are places even where there is a ``row_id`` column: true where an order told them.
        read: reading options.

    Raises:
        UsageError: rows that the data does not have; the message names some.
        SourceError: an input that cannot be read.
    """
    ids = list(dict.fromkeys(wanted))
    with tempfile.TemporaryDirectory() as spool:
        planned = plan(list(inputs), read, Path(spool))
        heads = {source.name: planned.head(source, _HEAD) for source in planned.sources}
        asked = _sorted_out(heads, ids, positions=positions)
        found: dict[RowId, FoundRow] = {}
        for row in _walk(planned, asked, read):
            found.setdefault(row.id, row)
            if len(found) == len(ids):
                break
    missing = [row for row in ids if row not in found]
    if missing:
        more = f" and {len(missing) - 3} others" if len(missing) > 3 else ""  # noqa: PLR2004 - a line, not a page
        raise UsageError(
            f"{', '.join(inputs)} has no row {', '.join(str(row) for row in missing[:3])}{more}: "
            "expected the data that the run was trained on, whole and in its order"
        )
    return FoundRows(tuple(found.values()), heads)


def _sorted_out(heads: dict[str, list[dict[str, Any]]], ids: Sequence[RowId], *, positions: bool) -> _Wanted:
    head: dict[str, Any] = next((records[0] for records in heads.values() if records), {})
    if set(head) == CAPSULE_KEYS:
        return _Wanted(values=set(ids), column="row")
    asked = _Wanted()
    for row in ids:
        source, _, number = str(row).rpartition(":")
        if isinstance(row, int) and (positions or ID_COLUMN not in head):
            asked.places.add(row)
        elif isinstance(row, str) and number.isdecimal() and source in heads:
            asked.named[source, int(number)] = row
        else:
            asked.values.add(row)
    return asked


def _walk(planned: Plan, asked: _Wanted, read: ReadOptions) -> Iterator[FoundRow]:
    place = 0
    before: dict[int, int] = {}  # records of each source in its earlier shards
    for shard in planned.shards:
        base = before.get(shard.source.index, 0)
        reader = open_shard(shard, read)
        for block in reader:
            numbers = np.sort(np.concatenate([block.rows, np.array([s.row for s in block.strays], np.int64)]))
            stretch = _Stretch(shard.source.name, numbers, place, base)
            yield from _matches(block, stretch, asked)
            place += len(numbers)
        before[shard.source.index] = base + reader.facts.n_records


@dataclass(frozen=True)
class _Stretch:
    """Where a block lies: its source, its shard-local record numbers, the place of the first over all inputs."""

    source: str
    numbers: NDArray[np.int64]
    place: int
    base: int  # records of the source before the shard


def _matches(block: RecordBlock, at: _Stretch, asked: _Wanted) -> Iterator[FoundRow]:
    """The rows of a block that are wanted."""
    by_number: dict[int, RowId] = {
        int(at.numbers[place - at.place]): place
        for place in asked.places
        if at.place <= place < at.place + len(at.numbers)
    }
    for (source, number), name in asked.named.items():
        if source == at.source and number - at.base in at.numbers:
            by_number[number - at.base] = name
    if asked.values and asked.column in block.batch.schema.names:
        column = block.batch.column(block.batch.schema.names.index(asked.column)).to_pylist()
        by_number |= {
            int(block.rows[i]): value
            for i, value in enumerate(column)
            if isinstance(value, int | str) and value in asked.values
        }
    if not by_number:
        return
    lines = {s.row: s.raw or b"" for s in block.strays if s.row in by_number}
    lines |= {int(block.rows[i]): _line(block, i) for i in range(len(block.rows)) if int(block.rows[i]) in by_number}
    for number in sorted(by_number):
        yield FoundRow(by_number[number], at.source, at.base + number, lines[number])


def _line(block: RecordBlock, i: int) -> bytes:
    """A record as one line of JSON: as it stands in the file, where that is JSON; out of its capsule."""
    record: Any = None
    if block.raw is not None:
        raw = block.raw.line(i)
        try:
            record = orjson.loads(raw)
        except orjson.JSONDecodeError:  # CSV, or NaN in JSON
            if raw[:1] == b"{" and b"\n" not in raw:
                return raw
    if not isinstance(record, dict):
        no_format: Any = None  # rows are decoded without one
        record = {k: v for k, v in Conversations(no_format, block.batch).row(i).items() if v is not None}
    if set(record) == CAPSULE_KEYS and isinstance(record["record"], dict):
        record = record["record"]
    return orjson.dumps(json_safe(record))
