"""CSV and TSV: rows cut by a kernel that knows quotes, parsed block by block, every column as it is written."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from cleanse.blocks import RawLines, RecordBlock
from cleanse.records import EventKind, ReadEvent
from cleanse.sources.arrowtypes import distinct
from cleanse.sources.candidates import BOM, Candidates, check_utf8, set_oversized_apart
from cleanse.sources.convert import Conformer
from cleanse.sources.errors import SourceError
from cleanse.sources.fileevents import Blanks, closing_block, stream_events
from cleanse.sources.large import note_large
from cleanse.sources.lines import Lines
from cleanse.sources.model import ReadOptions, Shard, ShardFacts
from cleanse.sources.shown import excerpt, shown
from cleanse.sources.spans import SpanCutter
from cleanse.sources.spans_kernel import csv_spans
from cleanse.sources.streams import open_stream
from cleanse.sources.types import LOOSE_BIG, LOOSE_FLOAT, MAX_COLUMNS, Kind, Node, Types

NULL_LITERALS = (
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
"""What pandas.read_csv (and with it ``datasets``) takes for a missing value, besides the empty field.
Source: pandas, ``pandas._libs.parsers.STR_NA_VALUES``."""

_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"  # at most 18 digits: fits int64
_FRACTION = r"^-?(0|[1-9][0-9]{0,15})\.[0-9]{1,16}$"
_SAFE = 1 << 53
_DELIMITERS = ",;\t|"


def read_csv(shard: Shard, options: ReadOptions, types: Types | None, facts: ShardFacts) -> Iterator[RecordBlock]:
    """The rows of a CSV or TSV file behind its header, which gives the columns their names."""
    return _CsvReader(shard, options, types, facts).blocks()


class _CsvReader:
    def __init__(self, shard: Shard, options: ReadOptions, types: Types | None, facts: ShardFacts) -> None:
        self.shard, self.options, self.facts = shard, options, facts
        self.conform = Conformer(types)
        self.types = facts.types
        self.blanks = Blanks()
        self.names: list[str] = []
        self.delimiter = "\t" if shard.source.kind == "tsv" else ","
        self.bom: list[ReadEvent] = []

    def blocks(self) -> Iterator[RecordBlock]:
        source = self.shard.source
        if source.kind == "csv":
            self.delimiter = _sniff_delimiter(source.path, source.compression)
        stream = open_stream(source.path, source.compression)
        cutter = SpanCutter(
            stream.read,
            csv_spans,
            ord(self.delimiter),
            block_bytes=self.options.block_bytes,
            max_record_bytes=self.options.max_record_bytes,
        )
        try:
            for lines in cutter.blocks():
                self.facts.n_bytes += lines.n_bytes
                fields = cutter.fields
                if not self.names and len(lines):
                    skip = self._take_header(lines, fields)
                    lines, fields = _without(lines, skip), fields[skip:]  # noqa: PLW2901
                    cutter.row -= skip
                if len(lines):
                    yield self._block(lines, fields, open_quote=cutter.open_quote)
            events = [*self.bom, *self.blanks.events(), *stream_events(self.shard, stream, self.facts.n_records)]
        finally:
            stream.close()
        nothing = pa.RecordBatch.from_arrays([pa.array([], pa.string())] * len(self.names), names=self.names)
        yield from closing_block(self.conform.batch(nothing, np.zeros(0, np.int64), []), events)

    def _take_header(self, lines: Lines, fields: NDArray[np.int64]) -> int:
        """Reads the names from the first line that is not blank; returns how many lines that used up."""
        filled = np.flatnonzero(fields)
        if lines.oversized and (not len(filled) or lines.oversized[0].row == filled[0]):
            raise SourceError(f"{self.shard.source.name}: the header is larger than a record may be")
        if not len(filled):
            return len(lines)
        at = int(filled[0])
        text = lines.text(at)
        if at == 0 and text.startswith(BOM):
            text = text[len(BOM) :]
            self.bom.append(
                ReadEvent(EventKind.BOM, 0, "a byte order mark (EF BB BF) at the start of the file: left out")
            )
        try:
            names = _one_row(text, self.delimiter)
        except (UnicodeDecodeError, csv.Error) as error:
            names = None
            reason: object = error
        else:
            reason = "no names"
        if not names:
            raise SourceError(f"{self.shard.source.name}: the header cannot be read ({reason}); expected column names")
        if len(names) > MAX_COLUMNS:
            raise SourceError(f"{self.shard.source.name}: {len(names):,} columns; expected at most {MAX_COLUMNS:,}")
        self.names = distinct(names)
        if self.conform.learning:
            for i, name in enumerate(self.names):
                self.types.root.fields[name] = Node((self.shard.source.index, 0, i))
                self.facts.first_rows[name] = 0
        return at + 1

    def _block(self, lines: Lines, fields: NDArray[np.int64], *, open_quote: bool) -> RecordBlock:
        block = Candidates(lines)
        set_oversized_apart(block)
        check_utf8(block)
        blank = np.flatnonzero(block.good & (fields == 0))
        block.good[blank] = False
        if len(blank):
            self.blanks.add(int(blank[0]) + lines.first_row, len(blank))
        for i in np.flatnonzero(block.good & (fields != len(self.names))).tolist():
            self._refuse(block, i, int(fields[i]), open_quote=open_quote and i == len(lines) - 1)
        if open_quote and len(lines) and block.good[-1]:
            self._refuse(block, len(lines) - 1, int(fields[-1]), open_quote=True)
        batch = self._parse(block)
        index = block.index()
        rows = index + lines.first_row
        self._count(lines, block, batch)
        events = sorted(block.events + _null_literals(batch, rows), key=lambda event: event.row)
        batch = self.conform.batch(batch, rows, events)
        note_large(self.facts, batch, rows)
        return RecordBlock(
            batch=batch,
            rows=rows,
            strays=sorted(block.strays, key=lambda stray: stray.row),
            events=events,
            raw=RawLines(np.frombuffer(lines.data, np.uint8), block.starts[index], lines.ends[index]),
            n_bytes=lines.n_bytes,
        )

    def _refuse(self, block: Candidates, i: int, found: int, *, open_quote: bool) -> None:
        text = block.text(i)
        if open_quote:
            kind, detail = EventKind.TRUNCATED, "a quote that opens in this row is never closed"
        else:
            kind = EventKind.WRONG_COLUMN_COUNT
            detail = f"{found} fields where the header has {len(self.names)}"
        block.set_apart(i, ReadEvent(kind, block.row(i), detail, value=float(found), excerpt=excerpt(text)))

    def _parse(self, block: Candidates) -> pa.RecordBatch:
        index = block.index()
        lines = block.lines
        if len(index) == len(lines) and len(lines):
            data = bytes(lines.data[int(lines.starts[0]) : int(lines.ends[-1])])
        else:
            data = b"\n".join([block.text(i) for i in index.tolist()])
        batch = _at_once(data, self.names, self.delimiter) if len(index) else None
        if batch is not None and batch.num_rows == len(index):
            return batch
        rows: list[list[str]] = []
        for i in index.tolist():
            try:
                row = _one_row(block.text(i), self.delimiter)
            except csv.Error as error:
                row = []
                block.set_apart(i, ReadEvent(EventKind.UNPARSEABLE, block.row(i), shown(str(error))))
                continue
            if len(row) == len(self.names):
                rows.append(row)
            else:
                self._refuse(block, i, len(row), open_quote=False)
        columns = [pa.array([row[k] for row in rows], pa.string()) for k in range(len(self.names))]
        return pa.RecordBatch.from_arrays(columns, names=self.names)

    def _count(self, lines: Lines, block: Candidates, batch: pa.RecordBatch) -> None:
        self.facts.n_records += len(lines)
        self.facts.n_read += batch.num_rows + len(block.strays)
        self.facts.n_blank = self.blanks.count
        if self.conform.learning:
            self.types.root.counts[Kind.OBJECT] += batch.num_rows
            for name, column in zip(self.names, batch.columns, strict=True):
                _observe(self.types.root.fields[name], column)


def _without(lines: Lines, skip: int) -> Lines:
    """The rows behind the header, numbered from 0."""
    lines.starts, lines.ends = lines.starts[skip:], lines.ends[skip:]
    lines.oversized = [replace(big, row=big.row - skip) for big in lines.oversized]
    return lines


def _sniff_delimiter(path: str, compression: str | None) -> str:
    """The delimiter that the header has most of; a comma where it has one."""
    stream = open_stream(path, compression)
    try:
        header = stream.read(1 << 16).split(b"\n", 1)[0].decode("utf-8", "replace")
    finally:
        stream.close()
    counts = {mark: header.count(mark) for mark in _DELIMITERS}
    if counts[","] or not any(counts.values()):
        return ","
    return max(counts, key=lambda mark: counts[mark])


def _at_once(data: bytes, names: list[str], delimiter: str) -> pa.RecordBatch | None:
    """Many rows by pyarrow, all columns as strings, nothing read as null; None where it refuses any."""
    try:
        table = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=len(data) + 64, column_names=names),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False),
            convert_options=pacsv.ConvertOptions(
                column_types={name: pa.string() for name in names}, strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        return None
    batches = table.combine_chunks().to_batches()
    return batches[0] if len(batches) == 1 else None


def _one_row(text: bytes, delimiter: str) -> list[str]:
    csv.field_size_limit(sys.maxsize)  # the default of 128 kB is below what a record may hold
    return next(csv.reader([text.decode("utf-8")], delimiter=delimiter), [])


def _null_literals(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> list[ReadEvent]:
    events = []
    literals = pa.array(NULL_LITERALS)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        field = shown(name)
        for i in np.flatnonzero(np.asarray(pc.is_in(column, literals))).tolist():
            text = column[i].as_py()
            detail = f"{field}: the text {text} will be read as null by pandas and datasets; here it stays text"
            events.append(ReadEvent(EventKind.NULL_LITERAL, int(rows[i]), detail, field=field, excerpt=text))
    return events


def _observe(node: Node, column: pa.Array) -> None:
    """Counts a column's values as text, or as numbers where the number has exactly this text."""
    integers = column.filter(pc.match_substring_regex(column, _INTEGER)).cast(pa.int64())
    fractions = column.filter(pc.match_substring_regex(column, _FRACTION))
    n_fractions = pc.sum(pc.equal(fractions.cast(pa.float64()).cast(pa.string()), fractions)).as_py() or 0
    node.loose += len(integers) + n_fractions
    node.counts[Kind.STRING] += len(column) - len(integers) - n_fractions
    if n_fractions:
        node.bits |= LOOSE_FLOAT
    if len(integers):
        ends = pc.min_max(integers).as_py()
        node.bits |= LOOSE_BIG if ends["min"] < -_SAFE or ends["max"] > _SAFE else 0
