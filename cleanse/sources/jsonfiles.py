"""JSON records from a file: one per line, or one after the other in an array or a stream of values."""

from __future__ import annotations

from collections.abc import Iterator

from cleanse.blocks import RecordBlock
from cleanse.records import EventKind, ReadEvent
from cleanse.sources.candidates import BOM
from cleanse.sources.fileevents import Blanks, closing_block, stream_events
from cleanse.sources.jsonblock import JsonParser
from cleanse.sources.lines import Lines, line_blocks, skip_to_line
from cleanse.sources.model import ReadOptions, Shard, ShardFacts
from cleanse.sources.streams import Stream, open_stream
from cleanse.sources.types import Types


def read_json(shard: Shard, options: ReadOptions, types: Types | None, facts: ShardFacts) -> Iterator[RecordBlock]:
    """The records of one shard of a JSON or JSONL file."""
    source = shard.source
    parser = JsonParser(source, types, facts)
    blanks = Blanks()
    stream = open_stream(source.path, source.compression, max(0, shard.start - 1))
    events: list[ReadEvent] = []
    try:
        start = _skip_bom(stream, events) if source.kind == "json" else 0
        for lines in _texts(stream, shard, options, start):
            block, state = parser.parse(lines)
            for index in state.blank:
                blanks.add(int(index[0]) + lines.first_row, len(index))
            facts.n_records += len(lines)
            facts.n_bytes += lines.n_bytes
            facts.n_blank = blanks.count
            yield block
        events += [*blanks.events(), *stream_events(shard, stream, facts.n_records)]
    finally:
        stream.close()
    yield from closing_block(parser.in_schema(), events)


def _skip_bom(stream: Stream, events: list[ReadEvent]) -> int:
    """Leaves a byte order mark out; returns the place of the first byte behind it."""
    if stream.peek(len(BOM)) != BOM:
        return 0
    stream.read(len(BOM))
    detail = "a byte order mark (EF BB BF) at the start of the file: left out"
    events.append(ReadEvent(EventKind.BOM, 0, detail))
    return len(BOM)


def _texts(stream: Stream, shard: Shard, options: ReadOptions, start: int) -> Iterator[Lines]:
    if shard.source.kind == "json":
        from cleanse.sources.jsonvalues import value_blocks  # noqa: PLC0415 - compiles a kernel

        return value_blocks(
            stream.read, block_bytes=options.block_bytes, max_record_bytes=options.max_record_bytes, start=start
        )
    return line_shard(stream, shard, options)


def line_shard(stream: Stream, shard: Shard, options: ReadOptions) -> Iterator[Lines]:
    """The lines that begin in a shard; ``stream`` stands one byte before it (at 0 for the first)."""
    start = shard.start
    if start > 0:
        skipped = skip_to_line(stream.read, shard.stop - start)
        if skipped is None:
            return iter(())
        start += skipped - 1
        stream.seek(start)
    return line_blocks(
        stream.read,
        block_bytes=options.block_bytes,
        max_record_bytes=options.max_record_bytes,
        start=start,
        stop=None if shard.source.compression else shard.stop,
    )
