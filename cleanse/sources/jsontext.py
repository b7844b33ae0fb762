"""Columns of strings turned into columns of JSON text."""

from __future__ import annotations

import orjson
import pyarrow as pa

from cleanse.sources.decide import Target


def quoted(batch: pa.RecordBatch, target: Target) -> pa.RecordBatch:
    """The batch (fresh from the parser, strings wherever the target wants JSON text) with those strings as JSON."""
    columns = [_quoted(column, below) for column, below in zip(batch.columns, target.fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=target.plain_schema) if columns else batch


def _quoted(array: pa.Array, target: Target) -> pa.Array:
    if target.as_json:
        texts = [None if text is None else orjson.dumps(text).decode() for text in array.to_pylist()]
        return pa.array(texts, pa.string())
    if not target.has_json:
        return array
    kind = array.type
    if target.item is not None:
        children = [_quoted(array.values, target.item)]
    else:
        children = [_quoted(array.field(i), below) for i, below in enumerate(target.fields)]
    own = array.buffers()[: 2 if target.item is not None else 1]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, children)
