"""From the kinds seen at each path to one Arrow type per path, and which kind is the usual one there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from cleanse.sources.features import json_type
from cleanse.sources.types import (
    BIG,
    DECLARED,
    FLOAT,
    LOOSE_BIG,
    LOOSE_FLOAT,
    MAX_DEPTH,
    NEGATIVE,
    UNSIGNED,
    Kind,
    Node,
    Types,
    named_type,
)


@dataclass(frozen=True)
class Target:
    """What the values of one path become.

    ``as_json``: JSON text of whatever stands there. ``usual``: the kind most values have, set only where
    there are several (then every other value is worth an event). ``plain`` is the type with JSON text as
    plain strings, which is what parsers are asked for.
    """

    name: str
    type: pa.DataType
    plain: pa.DataType
    usual: Kind | None = None
    as_json: bool = False
    total: int = 0  # values seen (not null)
    n_usual: int = 0
    item: Target | None = None
    fields: tuple[Target, ...] = ()
    watched: tuple[Target, ...] = field(init=False, compare=False, repr=False)
    """The fields at or below which values may have to change."""

    is_mixed: bool = field(init=False, compare=False, repr=False)
    """Whether values at or below this path may have to change, or are worth an event."""

    def __post_init__(self) -> None:
        watched = tuple(t for t in self.fields if t.is_mixed)
        here = self.as_json or self.usual is not None
        object.__setattr__(self, "watched", watched)
        object.__setattr__(self, "is_mixed", here or bool(watched) or bool(self.item and self.item.is_mixed))

    @property
    def has_json(self) -> bool:
        """Whether any value at or below this path becomes JSON text."""
        return self.as_json or any(t.has_json for t in self.fields) or bool(self.item and self.item.has_json)

    @property
    def json_is_mostly_text(self) -> bool:
        """Whether the paths that become JSON text hold strings more often than anything else."""
        if self.as_json:
            return self.usual is Kind.STRING
        below = [*self.fields, *([self.item] if self.item else [])]
        return all(t.json_is_mostly_text for t in below)

    @property
    def schema(self) -> pa.Schema:
        """The fields as a schema, JSON text marked as such."""
        return pa.schema([pa.field(t.name, t.type) for t in self.fields])

    @property
    def plain_schema(self) -> pa.Schema:
        """The fields as a schema, JSON text as plain strings."""
        return pa.schema([pa.field(t.name, t.plain) for t in self.fields])


def decide(types: Types) -> Target:
    """The target of whole records: a struct whose fields are the columns, in the order of the input."""
    return _struct("", types.root, 0)


def _struct(name: str, node: Node, depth: int) -> Target:
    fields = tuple(_target(key, child, depth + 1) for key, child in node.ordered())
    return Target(
        name=name,
        type=pa.struct([pa.field(t.name, t.type) for t in fields]),
        plain=pa.struct([pa.field(t.name, t.plain) for t in fields]),
        fields=fields,
    )


def _target(name: str, node: Node, depth: int) -> Target:
    if node.loose:
        node = _settled(node)
    kinds = [kind for kind in Kind if node.counts[kind]]
    arrows = {text: count for text, count in node.arrow.items() if count} or (node.arrow if not kinds else {})
    if not kinds and not arrows:
        kinds = [kind for kind in Kind if node.bits & (DECLARED << kind)]
    if arrows:
        return _typed(name, node, kinds, arrows)
    if not kinds:
        return Target(name, pa.null(), pa.null())
    total = sum(node.counts)
    if len(kinds) == 1:
        return _single(name, node, kinds[0], depth, total)
    usual = max(kinds, key=lambda kind: (node.counts[kind], -kind))
    if usual is Kind.STRING and not {Kind.LIST, Kind.OBJECT} & set(kinds):
        return Target(name, pa.string(), pa.string(), usual, total=total, n_usual=node.counts[usual])
    return _json(name, usual, total, node.counts[usual])


def _settled(node: Node) -> Node:
    """The node with its CSV numbers counted as numbers, where nothing but numbers stands there, else as text."""
    counts, bits = list(node.counts), node.bits
    texts = any(node.counts[kind] for kind in Kind if kind is not Kind.NUMBER) or not all(
        _is_number(named_type(text)) for text in node.arrow
    )
    if texts:
        counts[Kind.STRING] += node.loose
    else:
        counts[Kind.NUMBER] += node.loose
        bits |= (FLOAT if bits & LOOSE_FLOAT else 0) | (BIG if bits & LOOSE_BIG else 0)
        if bits & FLOAT and bits & BIG and not node.counts[Kind.NUMBER]:
            counts[Kind.STRING], counts[Kind.NUMBER] = node.loose, 0  # no number type holds all: they stay text
    return replace(node, counts=counts, bits=bits, loose=0)


def _json(name: str, usual: Kind | None = None, total: int = 0, n_usual: int = 0) -> Target:
    return Target(name, json_type(), pa.string(), usual, as_json=True, total=total, n_usual=n_usual)


def _single(name: str, node: Node, kind: Kind, depth: int, total: int) -> Target:
    if kind is Kind.STRING:
        return Target(name, pa.string(), pa.string(), total=total)
    if kind is Kind.BOOL:
        return Target(name, pa.bool_(), pa.bool_(), total=total)
    if kind is Kind.NUMBER:
        number = _number(node.bits)
        return Target(name, number, number, total=total) if number else _json(name, total=total)
    if depth >= MAX_DEPTH or node.wide:
        return _json(name, total=total)
    if kind is Kind.LIST:
        item = _target("item", node.item, depth + 1) if node.item else Target("item", pa.null(), pa.null())
        return Target(name, pa.list_(item.type), pa.list_(item.plain), total=total, item=item)
    # Parquet has no struct without fields, so objects that are always empty are kept as JSON too.
    return _struct(name, node, depth) if node.fields else _json(name, total=total)


def _number(bits: int) -> pa.DataType | None:
    """The type that holds every number exactly, or None where no type does."""
    if bits & FLOAT:
        return None if bits & (BIG | UNSIGNED) else pa.float64()
    if bits & UNSIGNED:
        return None if bits & NEGATIVE else pa.uint64()
    return pa.int64()


def _typed(name: str, node: Node, kinds: list[Kind], arrows: dict[str, int]) -> Target:
    """A path that typed files hold: their own type where all agree, a wider number, or JSON text."""
    found = [named_type(text) for text in sorted(arrows)]
    total = sum(node.counts) + sum(arrows.values())
    if len(found) == 1 and not kinds:
        return Target(name, found[0], found[0], total=total)
    if set(kinds) <= {Kind.NUMBER} and all(map(_is_number, found)):
        number = _wider(found, node.bits if kinds else 0, has_numbers=bool(kinds))
        if number is not None:
            return Target(name, number, number, total=total)
    return _json(name, total=total)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _wider(found: list[pa.DataType], bits: int, *, has_numbers: bool) -> pa.DataType | None:
    if has_numbers:
        own = _number(bits)
        if own is None:
            return None
        found = [*found, own]
    floats = any(pa.types.is_floating(t) for t in found)
    longs = any(pa.types.is_int64(t) or pa.types.is_uint64(t) for t in found)
    # JSON integers count as int64 here although they may be small: whether they fit a double is in the bits.
    json_only = has_numbers and not bits & (BIG | UNSIGNED)
    long_files = any(pa.types.is_int64(t) or pa.types.is_uint64(t) for t in found[: len(found) - has_numbers])
    if floats:
        return None if (long_files or (longs and not json_only)) else pa.float64()
    return None if any(pa.types.is_uint64(t) for t in found) else pa.int64()
