"""Adds what a record, or a whole Arrow batch, holds to a tree of types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cleanse.sources.errors import SourceError
from cleanse.sources.types import (
    BIG,
    DECLARED,
    FLOAT,
    MAX_COLUMNS,
    MAX_DEPTH,
    MAX_KEYS,
    MAX_PATHS,
    NEGATIVE,
    UNSIGNED,
    Kind,
    Node,
    Position,
    Types,
    type_name,
)

_SAFE = 1 << 53
_INT64_MAX = (1 << 63) - 1


def integer_bits(low: int, high: int) -> int:
    """What a tree remembers about integers of this range."""
    bits = BIG if low < -_SAFE or high > _SAFE else 0
    if high > _INT64_MAX:
        bits |= UNSIGNED
    return bits | (NEGATIVE if low < 0 else 0)


def observe_record(types: Types, record: dict[str, Any], at: tuple[int, int]) -> None:
    """Adds one record. ``at``: index of its source and place in it, which orders the columns.

    Raises SourceError where the records have more than ``MAX_COLUMNS`` different columns.
    """
    root = types.root
    root.counts[Kind.OBJECT] += 1
    fields = root.fields
    for i, (key, value) in enumerate(record.items()):
        node = fields.get(key)
        if node is None:
            node = fields[key] = Node((*at, i))
            if len(fields) > MAX_COLUMNS:
                raise SourceError(
                    f"more than {MAX_COLUMNS} different columns: expected records that share their columns; "
                    "wrap free-form keys in one column"
                )
        if type(value) is str:  # the common case, without a call
            node.counts[0] += 1
        elif value is not None:
            _add(node, value, 1, (*at, i))


def prune(types: Types) -> None:
    """Gives up structure below columns with too many paths. Call once per block: it walks the tree."""
    for node in types.root.fields.values():
        if node.n_paths() > MAX_PATHS:
            node.widen()


def _add(node: Node, value: Any, depth: int, at: Position) -> None:
    """Adds a value to its node; ``at`` is the way to it."""
    kind = type(value)
    if kind is str:
        node.counts[Kind.STRING] += 1
    elif value is None:
        pass
    elif kind is bool:
        node.counts[Kind.BOOL] += 1
    elif kind is int:
        node.counts[Kind.NUMBER] += 1
        node.add_bits(integer_bits(value, value))
    elif kind is float:
        node.counts[Kind.NUMBER] += 1
        node.add_bits(FLOAT)
    elif kind is dict:
        node.counts[Kind.OBJECT] += 1
        _add_keys(node, value, depth, at)
    else:
        node.counts[Kind.LIST] += 1
        if depth < MAX_DEPTH and not node.wide and value:
            if node.item is None:
                node.item = Node(at)
            for i, element in enumerate(value):
                _add(node.item, element, depth + 1, (*at, i))


def _add_keys(node: Node, value: dict[str, Any], depth: int, at: Position) -> None:
    if depth >= MAX_DEPTH or node.wide:
        return
    for i, (key, element) in enumerate(value.items()):
        child = node.fields.get(key)
        if child is None:
            child = node.fields[key] = Node((*at, i))
            if len(node.fields) > MAX_KEYS:
                node.widen()
                return
        if type(element) is str:
            child.counts[0] += 1
        elif element is not None:
            _add(child, element, depth + 1, (*at, i))


def observe_batch(types: Types, batch: pa.RecordBatch) -> None:
    """Adds a batch whose paths the tree already has (it was parsed with the tree's own schema)."""
    types.root.counts[Kind.OBJECT] += batch.num_rows
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        observe_array(types.root.fields[name], column)


def observe_array(node: Node, array: pa.Array) -> None:
    """Adds the values of one array to one path that has the array's structure already."""
    kind = array.type
    n_values = len(array) - array.null_count
    if pa.types.is_struct(kind) and kind.num_fields:
        node.counts[Kind.OBJECT] += n_values
        # flatten() applies the parents' nulls, which the children's own bitmaps need not have.
        for index, child in enumerate(array.flatten()):
            observe_array(node.fields[kind.field(index).name], child)
    elif pa.types.is_list(kind):
        node.counts[Kind.LIST] += n_values
        values = array.flatten()
        if node.item is not None and len(values):
            observe_array(node.item, values)
    elif pa.types.is_string(kind):
        node.counts[Kind.STRING] += n_values
    elif pa.types.is_boolean(kind):
        node.counts[Kind.BOOL] += n_values
    elif pa.types.is_int64(kind) or pa.types.is_uint64(kind) or pa.types.is_float64(kind):
        node.counts[Kind.NUMBER] += n_values
        node.add_bits(_number_bits(array) if n_values else 0)
    elif not pa.types.is_null(kind):
        name = type_name(kind)
        node.arrow[name] = node.arrow.get(name, 0) + n_values


def _number_bits(array: pa.Array) -> int:
    if pa.types.is_float64(array.type):
        return FLOAT
    ends = pc.min_max(array).as_py()
    return integer_bits(ends["min"], ends["max"])


def declare(node: Node, kind: pa.DataType, source: int) -> None:
    """Adds the structure of a typed file's path, whatever its values: empty and null columns keep their type."""
    if pa.types.is_struct(kind) and kind.num_fields:
        node.bits |= DECLARED << Kind.OBJECT
        for index, child in enumerate(kind):
            below = node.fields.setdefault(child.name, Node((source, 0, index)))
            declare(below, child.type, source)
    elif pa.types.is_list(kind):
        node.bits |= DECLARED << Kind.LIST
        node.item = node.item or Node((source, 0))
        declare(node.item, kind.value_type, source)
    elif pa.types.is_string(kind):
        node.bits |= DECLARED << Kind.STRING
    elif pa.types.is_boolean(kind):
        node.bits |= DECLARED << Kind.BOOL
    elif pa.types.is_int64(kind) or pa.types.is_uint64(kind) or pa.types.is_float64(kind):
        more = FLOAT if pa.types.is_float64(kind) else UNSIGNED if pa.types.is_uint64(kind) else 0
        node.add_bits((DECLARED << Kind.NUMBER) | more)
    elif not pa.types.is_null(kind):
        node.arrow.setdefault(type_name(kind), 0)
