"""Parquet by row groups, Arrow files and streams by record batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cleanse.blocks import RecordBlock
from cleanse.records import EventKind, ReadEvent, Stray
from cleanse.sources.arrowtypes import in_usual_types, usual_schema
from cleanse.sources.charsets import likely
from cleanse.sources.convert import Conformer
from cleanse.sources.features import carried_features
from cleanse.sources.fileevents import closing_block, expansion
from cleanse.sources.large import large_values, note_large
from cleanse.sources.model import Cut, ReadOptions, Shard, ShardFacts, Source
from cleanse.sources.observe import declare, observe_array
from cleanse.sources.places import open_random
from cleanse.sources.shown import excerpt, shown
from cleanse.sources.types import Kind, Node, Types

_ERRORS = (pa.ArrowException, OSError, ValueError)
_MAX_ROWS = 1 << 17  # rows per block, however small they are


def cuts(source: Source, options: ReadOptions) -> list[Cut]:
    """Ranges of row groups or record batches of about ``shard_bytes``; one empty range for a damaged file."""
    try:
        parts = _row_groups(source.path) if source.kind == "parquet" else _record_batches(source.path)
    except _ERRORS:
        parts = []  # the reader says what is wrong with it
    ranges, start, offset, size = [], 0, 0, 0
    for i, (more, at) in enumerate(parts):
        if size and size + more > options.shard_bytes:
            ranges.append((start, i, offset))
            start, offset, size = i, at, 0
        size += more
    return [*ranges, (start, len(parts), offset)]


def _row_groups(path: str) -> list[tuple[int, int]]:
    """Bytes of each, and 0: one is found without knowing where it lies."""
    with open_random(path, pa.OSFile) as opened, pq.ParquetFile(opened) as file:
        groups = file.metadata
        return [(groups.row_group(i).total_byte_size, 0) for i in range(groups.num_row_groups)]


def _record_batches(path: str) -> list[tuple[int, int]]:
    """Bytes of each, and the byte of a stream at which it can be read without those before it (0: it cannot)."""
    with open_random(path, pa.memory_map) as opened:
        if _is_stream(opened):
            return _in_stream(opened)
        file = pa.ipc.open_file(opened)
        each = opened.size() // max(1, file.num_record_batches)  # sizes are not in the footer
        return [(each, 0)] * file.num_record_batches


def _in_stream(opened: pa.NativeFile) -> list[tuple[int, int]]:
    """Damage counts as a batch: the reader, who gets there after those before it, says what is wrong."""
    found, alone = [], True
    reader = pa.ipc.MessageReader.open_stream(opened)
    while True:
        place = opened.tell()
        try:
            message = reader.read_next_message()
        except StopIteration:
            break
        except _ERRORS:
            found.append((0, place))
            break
        if message.type == "record batch":
            found.append((len(message.body), place))
        elif message.type == "dictionary":  # what follows cannot be read without it
            alone = False
    return found if alone else [(size, 0) for size, _ in found]


def _is_stream(opened: pa.NativeFile) -> bool:
    head = opened.read(6)
    opened.seek(0)
    return bool(head != b"ARROW1")


def read_arrow(shard: Shard, options: ReadOptions, types: Types | None, facts: ShardFacts) -> Iterator[RecordBlock]:
    """The records of a range of row groups or record batches."""
    return _TypedReader(shard, options, types, facts).blocks()


class _TypedReader:
    def __init__(self, shard: Shard, options: ReadOptions, types: Types | None, facts: ShardFacts) -> None:
        self.shard, self.options, self.facts = shard, options, facts
        self.conform = Conformer(types)
        self.events: list[ReadEvent] = []

    def blocks(self) -> Iterator[RecordBlock]:
        source = self.shard.source
        batches = self._parquet() if source.kind == "parquet" else self._arrow()
        for batch in batches:
            yield from self._sliced(batch)
        self.facts.n_bytes = max(self.facts.n_bytes, 0)
        if self.shard.start == 0:
            self.events += expansion(source.expanded_from, source.n_bytes)
        nothing = pa.RecordBatch.from_arrays([], names=[])
        yield from closing_block(self.conform.batch(nothing, np.zeros(0, np.int64), []), self.events)

    def _learn_schema(self, schema: pa.Schema) -> None:
        """Declares every column, so that it keeps its type where it holds nothing but nulls."""
        if not self.conform.learning:
            return
        types, index = self.facts.types, self.shard.source.index
        usual = usual_schema(schema)
        for i, column in enumerate(usual):
            node = types.root.fields.setdefault(column.name, Node((index, 0, i)))
            declare(node, column.type, index)
            self.facts.first_rows[column.name] = 0
        for name, texts in carried_features(schema).items():
            types.features[name] = texts

    def _failed(self, error: Exception, lost: int | None = None) -> None:
        rows = "what follows is" if lost is None else f"{lost:,} records are"
        detail = f"{shown(str(error))}: {rows} lost to any reader"
        self.events.append(ReadEvent(EventKind.READ_ERROR, self.facts.n_records, detail))

    def _parquet(self) -> Iterator[pa.RecordBatch]:
        try:
            opened = open_random(self.shard.source.path, pa.OSFile)
            # Without pre-buffering and with a small buffer, pages are read as they are needed.
            file = pq.ParquetFile(opened, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True)
        except _ERRORS as error:
            self._failed(error)
            return
        with opened, file:
            self._learn_schema(file.schema_arrow)
            for group in range(self.shard.start, self.shard.stop):
                described = file.metadata.row_group(group)
                n_rows = described.num_rows
                per_row = max(1, described.total_byte_size // max(1, n_rows))
                size = max(1, min(_MAX_ROWS, self.options.block_bytes // per_row))
                batches = file.iter_batches(batch_size=size, row_groups=[group], use_threads=False)
                seen = 0
                while seen < n_rows:
                    try:
                        batch = next(batches)
                    except (*_ERRORS, StopIteration) as error:
                        self._failed(error, n_rows - seen)
                        self.facts.n_records += n_rows - seen  # numbering goes on behind the hole
                        break
                    yield batch
                    seen += batch.num_rows

    def _arrow(self) -> Iterator[pa.RecordBatch]:
        batches = self._open()
        while True:
            # Only the reading itself may fail: a mistake of ours must not look like damage.
            try:
                batch = next(batches, None)
            except _ERRORS as error:
                self._failed(error)
                return
            if batch is None:
                return
            if isinstance(batch, pa.Schema):
                self._learn_schema(batch)
            else:
                yield batch

    def _open(self) -> Iterator[pa.Schema | pa.RecordBatch]:
        """The schema, then the record batches of this shard."""
        start, stop, offset = self.shard.start, self.shard.stop, self.shard.offset
        with open_random(self.shard.source.path, pa.memory_map) as opened:
            if _is_stream(opened):
                stream = pa.ipc.open_stream(opened)
                yield stream.schema
                if offset:
                    opened.seek(offset)
                yield from islice(stream, stop - start) if offset else islice(stream, start, stop)
            else:
                file = pa.ipc.open_file(opened)
                yield file.schema
                yield from map(file.get_batch, range(start, stop))

    def _sliced(self, batch: pa.RecordBatch) -> Iterator[RecordBlock]:
        per_row = max(1, batch.nbytes // max(1, batch.num_rows))
        step = max(1, min(_MAX_ROWS, self.options.block_bytes // per_row))
        for start in range(0, batch.num_rows, step):
            yield self._block(batch.slice(start, step))

    def _block(self, batch: pa.RecordBatch) -> RecordBlock:
        facts, n_bytes = self.facts, batch.nbytes
        rows = np.arange(batch.num_rows, dtype=np.int64) + facts.n_records
        strays = unusable(batch, rows, self.options.max_record_bytes)
        if strays:
            keep = np.ones(batch.num_rows, np.bool_)
            keep[[stray.row - facts.n_records for stray in strays]] = False
            batch, rows = batch.filter(pa.array(keep)), rows[keep]
        facts.n_records += len(rows) + len(strays)
        facts.n_read += len(rows) + len(strays)
        facts.n_bytes += n_bytes
        batch = in_usual_types(batch)
        if self.conform.learning:
            facts.types.root.counts[Kind.OBJECT] += batch.num_rows
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                observe_array(facts.types.root.fields[name], column)
        events: list[ReadEvent] = []
        batch = self.conform.batch(batch, rows, events)
        note_large(facts, batch, rows)
        return RecordBlock(batch=batch, rows=rows, strays=strays, events=events, n_bytes=n_bytes)


def unusable(batch: pa.RecordBatch, rows: NDArray[np.int64], limit: int) -> list[Stray]:
    """Rows with text that is not UTF-8 (no writer checks it), broken offsets, or more than ``limit`` bytes."""
    found: dict[int, Stray] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for i in _invalid(column, 0):
            found.setdefault(i, _bad_text(name, column.slice(i, 1), int(rows[i])))
    if batch.nbytes > limit:
        whole = batch.to_struct_array()
        for i, size in large_values(whole, limit + 1):
            digest = hashlib.sha256(raw_text(whole.slice(i, 1))).hexdigest()
            detail = f"a record of {size:,} bytes: record {int(rows[i])} of this part, sha256 of its text {digest}"
            event = ReadEvent(EventKind.TOO_LARGE, int(rows[i]), detail, value=float(size))
            found.setdefault(i, Stray(int(rows[i]), None, event))
    return [found[i] for i in sorted(found)]


def _invalid(array: pa.Array, at: int) -> Iterator[int]:
    """The rows that do not validate, found by halving."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        if len(array) <= 1:
            yield at
            return
        half = len(array) // 2
        yield from _invalid(array.slice(0, half), at)
        yield from _invalid(array.slice(half), at + half)


def _bad_text(name: str, value: pa.Array, row: int) -> Stray:
    field = shown(name)
    raw = raw_text(value)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"{field}: byte 0x{raw[error.start]:02x} at offset {error.start}; {likely(raw, error.start)}"
        quoted = excerpt(raw, error.start)
        return Stray(row, raw, ReadEvent(EventKind.INVALID_UTF8, row, found, field=field, excerpt=quoted))
    return Stray(row, raw, ReadEvent(EventKind.UNPARSEABLE, row, f"{field}: the value is damaged", field=field))


def raw_text(array: pa.Array) -> bytes:
    """The bytes of all strings in an array (of valid offsets), without decoding them."""
    t = pa.types
    if t.is_string(array.type) or t.is_large_string(array.type):
        as_bytes = array.view(pa.large_binary() if t.is_large_string(array.type) else pa.binary())
        return b"\n".join(value for value in as_bytes.to_pylist() if value is not None)
    if t.is_dictionary(array.type):
        return raw_text(array.dictionary)
    if t.is_struct(array.type):
        return b"\n".join(part for part in map(raw_text, array.flatten()) if part)
    if t.is_list(array.type) or t.is_large_list(array.type):
        return raw_text(array.flatten())
    return b""
