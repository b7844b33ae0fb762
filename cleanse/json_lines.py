"""Clean records as JSON lines: the bytes they came as, unless a repair touched them or they never were JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.blocks import RawLines
from cleanse.formats import replace_text
from cleanse.formats.leaves import is_json
from cleanse.mending import Mended


def lines(mended: Mended, keep: NDArray[np.bool_], raw: RawLines | None) -> Iterator[bytes]:
    """Chunks of whole lines for the records for which ``keep`` holds.

    Args:
        mended: the records, and the texts that repairs changed.
        keep: (rows,) which to write.
        raw: the JSON text of each record as it was read, or None where the input was not JSON.
    """
    chosen = np.flatnonzero(keep)
    if len(chosen) == 0:
        return
    if raw is None:
        yield from _from_values(mended.batch.take(pa.array(chosen)))
        return
    view = np.ascontiguousarray(raw.buffer).data  # slices of it are not copies
    texts: list[bytes | memoryview] = []
    for position, start, end in zip(
        chosen.tolist(), raw.starts[chosen].tolist(), raw.ends[chosen].tolist(), strict=True
    ):
        edits = mended.edits.get(position)
        texts.append(view[start:end] if edits is None else _edited(bytes(view[start:end]), edits))
    texts.append(b"")
    joined = b"\n".join(texts)
    if joined.count(b"\n") >= len(texts):  # a value written over several lines, in a file that was a JSON array
        joined = b"\n".join([*(_on_one_line(bytes(text)) for text in texts[:-1]), b""])
    yield joined


def _edited(line: bytes, edits: Mapping[str, str]) -> bytes:
    row, dump = _parse(line)
    for field, text in edits.items():
        row = replace_text(row, field, text)
    return dump(row)


def _on_one_line(text: bytes) -> bytes:
    if b"\n" not in text:
        return text
    value, dump = _parse(text)
    return dump(value)


def _parse(text: bytes) -> tuple[Any, Any]:
    """The value, and the function that writes it back without loss: orjson knows neither NaN nor big integers."""
    try:
        return orjson.loads(text), orjson.dumps
    except orjson.JSONDecodeError:
        return json.loads(text), lambda value: json.dumps(value, ensure_ascii=False).encode()


def _from_values(batch: pa.RecordBatch) -> Iterator[bytes]:
    structured = {field.name: field.type for field in batch.schema if _holds_json(field.type)}
    for row in batch.to_pylist():
        for name, kind in structured.items():
            row[name] = _with_fragments(row[name], kind)
        yield orjson.dumps(row, default=_plain) + b"\n"


def _holds_json(kind: pa.DataType) -> bool:
    """Whether JSON text stands somewhere in values of this type."""
    if is_json(kind):
        return True
    return any(_holds_json(kind.field(i).type) for i in range(kind.num_fields))


def _with_fragments(value: Any, kind: pa.DataType) -> Any:
    """The value with its JSON text as the JSON that it is."""
    if value is None or not _holds_json(kind):
        return value
    if is_json(kind):
        return orjson.Fragment(value)
    if isinstance(value, dict):
        return {child.name: _with_fragments(value[child.name], child.type) for child in kind}
    return [_with_fragments(child, kind.value_type) for child in value]


def _plain(value: Any) -> Any:
    """Values that Arrow has and JSON has not: bytes as base64, the rest as text."""
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else str(value)
