"""One Arrow type per idea: strings are ``string``, lists ``list``, whatever layout a file chose for them."""

from __future__ import annotations

import pyarrow as pa

from cleanse.sources.features import is_json


def usual_type(kind: pa.DataType) -> pa.DataType:
    """The type in its usual layout; values stay the same."""
    t = pa.types
    made = kind
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        made = usual_type(kind.value_type)
    elif t.is_large_string(kind) or t.is_string_view(kind):
        made = pa.string()
    elif t.is_large_binary(kind) or t.is_binary_view(kind):
        made = pa.binary()
    elif t.is_list(kind) or t.is_large_list(kind) or t.is_list_view(kind) or t.is_large_list_view(kind):
        made = pa.list_(usual_type(kind.value_type))
    elif t.is_struct(kind):
        made = pa.struct([pa.field(child.name, usual_type(child.type)) for child in kind])
    elif isinstance(kind, pa.BaseExtensionType) and not is_json(kind):
        made = usual_type(kind.storage_type)
    return made


def usual_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that ``in_usual_types`` gives the batches of a file; the file's metadata is left out."""
    names = distinct(schema.names)
    return pa.schema([pa.field(name, usual_type(kind)) for name, kind in zip(names, schema.types, strict=True)])


def in_usual_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with every column in its usual layout; columns of one name are told apart ("a", "a.1")."""
    columns = [_usual(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=distinct(batch.schema.names))


def distinct(names: list[str]) -> list[str]:
    """Names as pandas makes them distinct: "a", "a.1"; a column without a name is called after its place."""
    seen: set[str] = set()
    made = []
    for i, name in enumerate(names):
        base = new = name or f"column_{i}"
        k = 0
        while new in seen:
            k += 1
            new = f"{base}.{k}"
        seen.add(new)
        made.append(new)
    return made


def _usual(array: pa.Array) -> pa.Array:
    kind = usual_type(array.type)
    if array.type == kind:
        return array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array(array.to_pylist(), kind)
