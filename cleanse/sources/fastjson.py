"""Many JSON records at once: pyarrow's block parser with a fixed schema, never with its type inference."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as paj

_SAFE = float(1 << 53)
_SLACK = 64  # the parser's block must be larger than the data, or objects straddle two of its blocks


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of no rows."""
    return pa.RecordBatch.from_arrays([pa.array([], column.type) for column in schema], schema=schema)


def parse(data: bytes | memoryview, schema: pa.Schema, n_records: int) -> pa.RecordBatch | None:
    """The records of a buffer, or None: something in it is not JSON, or does not have the schema.

    Refused are duplicate keys, lone surrogates, unknown columns, other types. Not refused, so to be checked by
    the caller: bytes that are not UTF-8, NaN, integers that a double column cannot hold, two objects in a line.
    """
    if len(schema) == 0:
        return None  # objects without any key: the parser would lose count
    try:
        table = paj.read_json(
            pa.BufferReader(pa.py_buffer(data)),
            read_options=paj.ReadOptions(use_threads=False, block_size=len(data) + _SLACK),
            parse_options=paj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if table.num_rows != n_records:
        return None
    if any(_has_inner_null(column.type) for column in schema):
        # Not combine_chunks(): copying an array that is too short fails. The data was one block: one chunk.
        columns = [_mended(column.chunk(0), n_records) for column in table.columns]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    batches = table.combine_chunks().to_batches()
    return batches[0] if len(batches) == 1 else None


def _has_inner_null(kind: pa.DataType) -> bool:
    below = [kind.field(i).type for i in range(kind.num_fields)]
    return any(pa.types.is_null(child) or _has_inner_null(child) for child in below)


def _mended(array: pa.Array, length: int) -> pa.Array:
    """The array with null children of the right length: pyarrow (to 26 at least) makes those of lists too short."""
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(length)
    if not _has_inner_null(kind):
        return array
    if pa.types.is_struct(kind):
        children = [_mended(array.field(i), length) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    offsets = array.offsets
    values = _mended(array.values, offsets[-1].as_py())
    return pa.Array.from_buffers(kind, length, array.buffers()[:2], array.null_count, 0, [values])


def parse_pieces(pieces: list[bytes], schema: pa.Schema) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
    """One record per piece; the pieces that even alone do not parse are named, with the parser's words."""
    if len(schema) == 0:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(pieces), pa.struct([]))), []
    batch = parse(b"\n".join(pieces), schema, len(pieces)) if pieces else empty(schema)
    if batch is not None:
        return batch, []
    if len(pieces) == 1:
        return empty(schema), [(0, _complaint(pieces[0], schema))]
    half = len(pieces) // 2
    left, bad_left = parse_pieces(pieces[:half], schema)
    right, bad_right = parse_pieces(pieces[half:], schema)
    joined = pa.Table.from_batches([left, right]).combine_chunks().to_batches()
    bad = bad_left + [(half + i, words) for i, words in bad_right]
    return (joined[0] if joined else empty(schema)), bad


def _complaint(piece: bytes, schema: pa.Schema) -> str:
    try:
        paj.read_json(
            pa.BufferReader(piece),
            read_options=paj.ReadOptions(use_threads=False, block_size=len(piece) + _SLACK),
            parse_options=paj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        return str(error)
    return "not one object"


def doubtful_rows(batch: pa.RecordBatch) -> list[int]:
    """Rows with a double that may not be what its text says: not finite, or 2**53 and beyond. Ascending."""
    rows = np.arange(batch.num_rows)
    found = [_doubtful(column, rows) for column in batch.columns if _has_double(column.type)]
    return np.unique(np.concatenate(found)).tolist() if found else []


def _has_double(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _has_double(kind.value_type)
    if pa.types.is_struct(kind):
        return any(_has_double(child.type) for child in kind)
    return bool(pa.types.is_float64(kind))


def _doubtful(
    array: pa.Array, rows: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if pa.types.is_float64(array.type):
        values = array.fill_null(0.0).to_numpy(zero_copy_only=False)
        return rows[~(np.abs(values) < _SAFE)]
    found = [np.zeros(0, np.int64)]
    if pa.types.is_list(array.type):
        parents = pc.list_parent_indices(array).to_numpy()
        found.append(_doubtful(array.flatten(), rows[parents]))
    elif pa.types.is_struct(array.type):
        found += [_doubtful(child, rows) for child in array.flatten() if _has_double(child.type)]
    return np.concatenate(found)


def cast_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly this schema, metadata included: JSON text gets its mark here."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    if not columns:  # from no arrays a batch would have no rows
        return batch.replace_schema_metadata(schema.metadata)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
