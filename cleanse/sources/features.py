"""The ``huggingface`` metadata of a schema, written without importing ``datasets`` (slow, and not for workers)."""

from __future__ import annotations

import functools
import json
from importlib import metadata as installed
from typing import Any

import pyarrow as pa

_JSON_SINCE = (4, 7)
"""First version of ``datasets`` with the ``Json`` feature. Before it, JSON text is a plain string column."""

_DTYPES = {
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "date32[day]": "date32",
    "date64[ms]": "date64",
}


@functools.cache
def json_type() -> pa.DataType:
    """The Arrow type of a column of JSON text: ``arrow.json`` where the installed ``datasets`` knows it."""
    try:
        version = tuple(int(part) for part in installed.version("datasets").split(".")[:2])
    except (installed.PackageNotFoundError, ValueError):
        version = (0, 0)
    if version >= _JSON_SINCE and hasattr(pa, "json_"):
        return pa.json_()
    return pa.string()


def is_json(kind: pa.DataType) -> bool:
    """Whether values of this type are JSON text by declaration."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json"


def metadata(schema: pa.Schema, carried: dict[str, list[str]]) -> dict[bytes, bytes]:
    """The metadata for a schema; a column keeps the feature its file carried, where all files agree on it."""
    features: dict[str, Any] = {}
    for column in schema:
        known = [json.loads(text) for text in carried.get(column.name, [])]
        agreed = len(known) == 1 and known[0][0] == str(column.type)
        feature = known[0][1] if agreed else _feature(column.type)
        if feature is None:
            return {}  # a type that datasets has no feature for: better no metadata than half of it
        features[column.name] = feature
    return {b"huggingface": json.dumps({"info": {"features": features}}).encode()}


def carried_features(schema: pa.Schema) -> dict[str, list[str]]:
    """Column -> [JSON text of (its Arrow type, its ``datasets`` feature)], from a file's own metadata.

    {} where the file has none, or none that can be read.
    """
    try:
        described = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        found = {str(name): feature for name, feature in described.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    return {
        column.name: [json.dumps([str(column.type), found[column.name]], sort_keys=True)]
        for column in schema
        if column.name in found
    }


def _feature(kind: pa.DataType) -> Any:
    if is_json(kind):
        return {"_type": "Json"}
    if pa.types.is_struct(kind):
        below = {child.name: _feature(child.type) for child in kind}
        return None if None in below.values() else below
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _feature(kind.value_type)
        return inner and {"feature": inner, "_type": "List" if pa.types.is_list(kind) else "LargeList"}
    if pa.types.is_fixed_size_list(kind):
        inner = _feature(kind.value_type)
        return inner and {"feature": inner, "length": kind.list_size, "_type": "List"}
    return _value(kind)


def _value(kind: pa.DataType) -> Any:
    text = str(kind)
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return None
    return {"dtype": _DTYPES.get(text, text), "_type": "Value"}
