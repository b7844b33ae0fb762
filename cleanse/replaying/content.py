"""What the rows of a step hold: their records, their texts, and what the rules say of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from cleanse.blocks import RecordBlock
from cleanse.formats import Format, FormatError, detect, view
from cleanse.inspection import Inspector
from cleanse.records import Action
from cleanse.replaying.data import CAPSULE_KEYS, FoundRow, FoundRows
from cleanse.replaying.steps import RowId
from cleanse.rulepacks import RuleSet
from cleanse.sources import ReadOptions, open_shard, plan

Segments = tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class Reason:
    """What one rule says of a row."""

    rule: str
    action: str
    message: str


@dataclass(frozen=True)
class DataRow:
    """One row of the data."""

    id: RowId
    source: str
    number: int  # 0-based record number in its source, as cleanse counts
    record: Mapping[str, Any]
    fmt: Format | None  # None: tokens already, or no format that is known
    segments: Segments  # (text, supervised), in reading order
    reasons: tuple[Reason, ...] = ()  # strongest first


def contents(
    found: FoundRows, rules: RuleSet, *, fmt: str = "auto", text_column: str | None = None
) -> dict[RowId, DataRow]:
    """The content of the rows that were found, by id.

    Args:
        found: from ``find_rows``.
        rules: what to judge them by.
        fmt: how columns make a record, as for a scan.
        text_column: as for a scan.

    Raises:
        FormatError: columns of no known format, and no ``input_ids``.
    """
    by_source: dict[str, list[FoundRow]] = {}
    for row in found.rows:
        by_source.setdefault(row.source, []).append(row)
    made: dict[RowId, DataRow] = {}
    for source, rows in by_source.items():
        made |= {row.id: row for row in _of_source(rows, found.heads[source], rules, fmt, text_column)}
    return made


def _of_source(
    rows: Sequence[FoundRow], head: list[dict[str, Any]], rules: RuleSet, fmt: str, text_column: str | None
) -> list[DataRow]:
    """The rows go through the readers once more, as small files of their own.

    As they are, for what the rules say of them; and mended, for their texts: a trainer that met a broken line had a
    lenient loader.
    """
    records = [_record(row.line) for row in rows]
    mended = [orjson.dumps(record) for record in records]
    if not head or set(head[0]) == CAPSULE_KEYS:
        head = records
    form = _format(rows[0].source, head, fmt, text_column)
    segments: dict[int, Segments] = {}
    for at, block in _blocks(mended):
        segments |= {at + row: parts for row, parts in _segments(block, form).items()}
    reasons: dict[int, list[Reason]] = {}
    for at, block in _blocks([row.line for row in rows]):
        for found in Inspector(rules, form).inspect(block, rows[0].source).to_pylist():
            reason = Reason(found["rule"], found["action"], found["message"])
            reasons.setdefault(at + found["row"], []).append(reason)
    return [
        DataRow(
            row.id,
            row.source,
            row.number,
            record,
            form,
            segments.get(i, ()),
            tuple(sorted(dict.fromkeys(reasons.get(i, [])), key=lambda r: -Action(r.action).severity)),
        )
        for i, (row, record) in enumerate(zip(rows, records, strict=True))
    ]


def _blocks(lines: Sequence[bytes]) -> Iterator[tuple[int, RecordBlock]]:
    """The lines as the readers have them, and how many stand before each block."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_bytes(b"".join(line.replace(b"\n", b" ") + b"\n" for line in lines))
        at = 0
        for shard in plan([str(path)], ReadOptions(), Path(folder)).shards:
            reader = open_shard(shard, ReadOptions())
            for block in reader:
                yield at, block
            at += reader.facts.n_records


def _format(source: str, head: list[dict[str, Any]], fmt: str, text_column: str | None) -> Format | None:
    if not head or any("input_ids" in record for record in head):
        return None
    try:
        return detect(head, name=fmt, text_column=text_column)
    except FormatError as error:
        raise FormatError(f"{source}: {error}") from None


def _segments(block: RecordBlock, form: Format | None) -> dict[int, Segments]:
    if form is None or block.batch.num_rows == 0:
        return {}
    texts = view(form, block.batch).texts
    made: dict[int, Segments] = {}
    for i in range(len(texts)):
        row = int(block.rows[int(texts.record[i])])
        made[row] = (*made.get(row, ()), (texts.text(i), bool(texts.supervised[i])))
    return made


def _record(line: bytes) -> dict[str, Any]:
    """The record of a line; of a broken one what a lenient loader makes of it."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        text = line.decode("utf-8", "replace")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return {"text": text}
        # half a surrogate pair is no text that a tokenizer would take
        whole = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        value = json.loads(whole)
    return value if isinstance(value, dict) else {"text": str(value)}
