"""Plain text: a record per line, in one column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.blocks import RawLines, RecordBlock
from cleanse.sources.candidates import BOM, Candidates, check_utf8, leave_out_bom, set_oversized_apart
from cleanse.sources.convert import Conformer
from cleanse.sources.fileevents import Blanks, closing_block, stream_events
from cleanse.sources.jsonfiles import line_shard
from cleanse.sources.large import note_large
from cleanse.sources.lines import Lines
from cleanse.sources.model import ReadOptions, Shard, ShardFacts
from cleanse.sources.observe import declare, observe_array
from cleanse.sources.streams import open_stream
from cleanse.sources.types import Kind, Node, Types

COLUMN = "text"
Places = NDArray[np.int64]


def read_text(shard: Shard, options: ReadOptions, types: Types | None, facts: ShardFacts) -> Iterator[RecordBlock]:
    """The lines of one shard of a text file."""
    source = shard.source
    blanks = Blanks()
    conform = Conformer(types)
    if types is None:
        node = facts.types.root.fields[COLUMN] = Node((source.index, 0, 0))
        declare(node, pa.string(), source.index)
        facts.first_rows[COLUMN] = 0
    stream = open_stream(source.path, source.compression, max(0, shard.start - 1))
    try:
        for lines in line_shard(stream, shard, options):
            yield _block(lines, conform, facts, blanks)
        events = [*blanks.events(), *stream_events(shard, stream, facts.n_records)]
    finally:
        stream.close()
    nothing = pa.RecordBatch.from_arrays([pa.array([], pa.string())], names=[COLUMN])
    yield from closing_block(conform.batch(nothing, np.zeros(0, np.int64), []), events)


def _block(lines: Lines, conform: Conformer, facts: ShardFacts, blanks: Blanks) -> RecordBlock:
    block = Candidates(lines)
    set_oversized_apart(block)
    if lines.base == 0 and len(lines) and lines.text(0).startswith(BOM):
        leave_out_bom(block, 0)
    check_utf8(block)
    blank = np.flatnonzero(block.good & (block.starts == lines.ends))
    block.good[blank] = False
    if len(blank):
        blanks.add(int(blank[0]) + lines.first_row, len(blank))
    index = block.index()
    rows = index + lines.first_row
    column = spans(lines.data, block.starts[index], lines.ends[index])
    if conform.learning:
        facts.types.root.counts[Kind.OBJECT] += len(index)
        observe_array(facts.types.root.fields[COLUMN], column)
    facts.n_records += len(lines)
    facts.n_blank = blanks.count
    facts.n_bytes += lines.n_bytes
    facts.n_read += len(index) + len(block.strays)
    events = list(block.events)
    batch = conform.batch(pa.RecordBatch.from_arrays([column], names=[COLUMN]), rows, events)
    note_large(facts, batch, rows)
    return RecordBlock(
        batch=batch,
        rows=rows,
        strays=sorted(block.strays, key=lambda stray: stray.row),
        events=events,
        raw=RawLines(np.frombuffer(lines.data, np.uint8), block.starts[index], lines.ends[index]),
        n_bytes=lines.n_bytes,
    )


def spans(data: bytes | memoryview, starts: Places, ends: Places) -> pa.Array:
    """Stretches of a buffer as an Arrow string array: valid UTF-8, ascending, apart by a byte at least."""
    array = np.frombuffer(data, np.uint8)
    edges = np.zeros(len(array) + 1, np.int8)
    filled = ends > starts
    edges[starts[filled]] = 1
    edges[ends[filled]] -= 1
    packed = array[np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_)]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends - starts)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(packed))
