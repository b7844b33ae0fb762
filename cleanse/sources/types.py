"""What kinds of values each column path held: counted per shard, merged over all, turned into one schema.

The tree is a join-semilattice with counters: counts add, bits join, key positions take the minimum. So merging
is associative and commutative, and the schema does not depend on how the input was cut.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import pyarrow as pa

MAX_KEYS = 128
"""Different keys below one nested path, above which its objects are dictionaries rather than structs: JSON."""

MAX_PATHS = 4096
"""Paths below one column, above which the whole column is JSON: bounds the tree for hostile input."""

MAX_COLUMNS = 10_000
MAX_DEPTH = 32
"""Nesting below which values are kept as JSON text. Arrow readers recurse; real records stay above 10."""


class Kind(IntEnum):
    """The kinds of JSON values; null is none of them. Ties for the usual kind go to the first."""

    STRING = 0
    NUMBER = 1
    BOOL = 2
    LIST = 3
    OBJECT = 4


# What else is known about the numbers of a path (bits), and which kinds a typed file declared (bit 8 + kind).
FLOAT = 1
BIG = 2  # an integer beyond 2**53: a double would change it
UNSIGNED = 4  # an integer beyond int64, within uint64
NEGATIVE = 8
LOOSE_FLOAT = 16  # among the numbers that CSV wrote is a fraction
LOOSE_BIG = 32  # ... or an integer beyond 2**53
DECLARED = 256

Position = tuple[int, ...]
"""Where a path was first met: index of the source, place of the record in it, then the way to the key (indexes of
keys and elements, from the outside in). Orders the keys of one object; says the same however shards are cut."""


@dataclass(eq=True)
class Node:
    """One path of the tree. ``item`` stands for all elements of the lists there, ``fields`` for the keys."""

    first: Position = ()
    counts: list[int] = field(default_factory=lambda: [0] * len(Kind))
    bits: int = 0
    item: Node | None = None
    fields: dict[str, Node] = field(default_factory=dict)
    wide: bool = False  # had more keys or paths than a struct should: what lies below is not followed
    arrow: dict[str, int] = field(default_factory=dict)  # Arrow types that JSON has no kind for -> values
    loose: int = 0  # CSV values that read back the same as numbers: text or numbers, as the others decide

    def add_bits(self, bits: int) -> None:
        """Adds what is known about the numbers here. Beside a float it no longer matters whether any is below 0."""
        self.bits |= bits
        if self.bits & FLOAT:
            self.bits &= ~NEGATIVE

    def widen(self) -> None:
        """Stops following what lies below."""
        self.wide, self.item, self.fields = True, None, {}

    def reset_counts(self) -> None:
        """Keeps the structure, forgets how many values were seen."""
        self.counts = [0] * len(Kind)
        self.loose = 0
        for node in [*self.fields.values(), *([self.item] if self.item else [])]:
            node.reset_counts()

    def n_paths(self) -> int:
        """How many paths lie at and below this one."""
        below = list(self.fields.values()) + ([self.item] if self.item else [])
        return 1 + sum(node.n_paths() for node in below)

    def join(self, other: Node, limit: int = MAX_KEYS) -> None:
        """Adds everything ``other`` saw to this node; ``other`` must not be used afterwards."""
        self.first = min(self.first, other.first)
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.add_bits(other.bits)
        self.loose += other.loose
        for name, count in other.arrow.items():
            self.arrow[name] = self.arrow.get(name, 0) + count
        if self.wide or other.wide:
            self.widen()
            return
        if self.item is None:
            self.item = other.item
        elif other.item is not None:
            self.item.join(other.item)
        for key, child in other.fields.items():
            mine = self.fields.get(key)
            if mine is None:
                self.fields[key] = child
            else:
                mine.join(child)
        if len(self.fields) > limit and not self.bits & (DECLARED << Kind.OBJECT):
            self.widen()

    def ordered(self) -> list[tuple[str, Node]]:
        """The keys in the order in which the input first showed them."""
        return sorted(self.fields.items(), key=lambda pair: (pair[1].first, pair[0]))

    def to_json(self) -> list[Any]:
        """Plain values, short, since every shard writes its tree to disk."""
        return [
            list(self.first),
            self.counts,
            self.bits,
            self.item.to_json() if self.item else None,
            {key: node.to_json() for key, node in self.fields.items()},
            self.wide,
            self.arrow,
            self.loose,
        ]

    @classmethod
    def from_json(cls, value: list[Any]) -> Node:
        """The node that ``to_json`` described."""
        first, counts, bits, item, fields, wide, arrow, loose = value
        return cls(
            first=tuple(first),
            counts=list(counts),
            bits=bits,
            item=cls.from_json(item) if item else None,
            fields={key: cls.from_json(node) for key, node in fields.items()},
            wide=wide,
            arrow=dict(arrow),
            loose=loose,
        )


@dataclass(eq=True)
class Types:
    """The kinds of values in every column path of some records."""

    root: Node = field(default_factory=Node)
    features: dict[str, list[str]] = field(default_factory=dict)
    """Column -> the ``datasets`` features (JSON text, sorted) that typed files carried for it."""

    def merge(self, other: Types) -> Types:
        """What both saw together; neither is changed. Associative and commutative."""
        merged = Types.from_json(self.to_json())
        copy = Types.from_json(other.to_json())
        merged.root.join(copy.root, limit=MAX_COLUMNS)
        for child in merged.root.fields.values():
            if child.n_paths() > MAX_PATHS:
                child.widen()
        for name, texts in copy.features.items():
            merged.features[name] = sorted({*merged.features.get(name, []), *texts})
        return merged

    def schema(self) -> pa.Schema:
        """The Arrow schema that holds every value seen, with the ``datasets`` features in its metadata."""
        from cleanse.sources.decide import decide  # noqa: PLC0415 - decide builds on this module

        bare = pa.schema([pa.field(t.name, t.type) for t in decide(self).fields])
        return bare.with_metadata(self.features_metadata())

    def features_metadata(self) -> dict[bytes, bytes]:
        """Schema metadata for ``datasets``: {b"huggingface": JSON}, naming the feature of every column."""
        from cleanse.sources.decide import decide  # noqa: PLC0415
        from cleanse.sources.features import metadata  # noqa: PLC0415

        bare = pa.schema([pa.field(t.name, t.type) for t in decide(self).fields])
        return metadata(bare, self.features)

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``from_json`` gives equal types back."""
        return {"root": self.root.to_json(), "features": {k: list(v) for k, v in self.features.items()}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Types:
        """The types that ``to_json`` described."""
        return cls(Node.from_json(value["root"]), {k: list(v) for k, v in value["features"].items()})


def type_name(kind: pa.DataType) -> str:
    """An Arrow type as text that ``named_type`` turns back into the type."""
    return base64.b64encode(pa.schema([pa.field("", kind)]).serialize().to_pybytes()).decode("ascii")


def named_type(name: str) -> pa.DataType:
    """The Arrow type of ``type_name``."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(name))).field(0).type
