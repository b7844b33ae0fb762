"""Records that are in memory already, as a block: read as the same records would be from a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from cleanse.blocks import RecordBlock
from cleanse.sources.arrowfiles import unusable
from cleanse.sources.arrowtypes import in_usual_types
from cleanse.sources.convert import plain
from cleanse.sources.errors import SourceError
from cleanse.sources.jsonblock import JsonParser
from cleanse.sources.lines import Lines, note_oversized
from cleanse.sources.model import ReadOptions, ShardFacts, Source


def block_of_table(table: pa.Table, options: ReadOptions) -> RecordBlock:
    """The rows of an Arrow table as one block, as a Parquet or Arrow file of them is read.

    Raises SourceError where a column holds more text than 32-bit offsets can tell apart (2 GiB).
    """
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise SourceError(
            f"{table.num_rows:,} records of {table.nbytes:,} bytes are more than one block can hold: "
            "give fewer records at once (batch_size)"
        )
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    rows = np.arange(batch.num_rows, dtype=np.int64)
    strays = unusable(batch, rows, options.max_record_bytes)
    if strays:
        keep = np.ones(batch.num_rows, np.bool_)
        keep[[stray.row for stray in strays]] = False
        batch, rows = batch.filter(pa.array(keep)), rows[keep]
    return RecordBlock(batch=in_usual_types(batch), rows=rows, strays=strays, n_bytes=table.nbytes)


def block_of_records(records: Iterable[Mapping[str, Any]], options: ReadOptions) -> RecordBlock:
    """Python records as one block, as a JSON Lines file of them is read: mixed types, lone surrogates and all.

    Values that JSON does not know (dates, images, arrays) are read as the text that stands for them.
    """
    texts = [_json(record) for record in records]
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    ends = np.cumsum(lengths + 1) - 1
    data = b"\n".join(texts) + b"\n"
    lines = Lines(data, starts=ends - lengths, ends=ends, first_row=0, n_bytes=len(data))
    note_oversized(lines, options.max_record_bytes)
    block, _ = JsonParser(Source(0, "", "", "jsonl", None, len(data)), None, ShardFacts()).parse(lines)
    return block


def _json(record: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(record, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):  # a lone surrogate, an integer of many digits: the reader tells what it is
        return json.dumps(record, default=_plain, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """A value of a type that JSON has not: arrays and tensors as lists, everything else as text."""
    to_list = getattr(value, "tolist", None)
    if to_list is not None:
        return to_list()
    return dict(value) if isinstance(value, Mapping) else plain(value)
