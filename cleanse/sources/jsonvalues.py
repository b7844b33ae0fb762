"""A .json file as blocks of values: the elements of an array, or objects that span lines."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cleanse.sources.lines import Lines, Read
from cleanse.sources.spans import SpanCutter
from cleanse.sources.spans_kernel import json_spans

_SPACE = ord(" ")


def value_blocks(read: Read, *, block_bytes: int, max_record_bytes: int, start: int = 0) -> Iterator[Lines]:
    """The values of a JSON stream, or the elements of its array, in blocks.

    What stands between two values (commas, the array's brackets) is blanked, so that a block parser for
    one object after the other can read a block as it is.
    """
    cutter = SpanCutter(read, json_spans, 0, block_bytes=block_bytes, max_record_bytes=max_record_bytes, start=start)
    for lines in cutter.blocks():
        lines.data = _only(lines)
        yield lines


def _only(lines: Lines) -> bytes:
    array = np.frombuffer(lines.data, np.uint8)
    edges = np.zeros(len(array) + 1, np.int8)
    np.add.at(edges, lines.starts, 1)
    np.subtract.at(edges, lines.ends, 1)
    inside = np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_)
    return np.where(inside, array, np.uint8(_SPACE)).tobytes()
