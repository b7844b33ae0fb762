"""Strings inside Arrow columns of any shape, found without a Python loop over rows.

A column may hold strings, lists of content parts, structs, JSON text or numbers. ``text_leaves`` walks the type,
not the rows: each level is one Arrow call, and places are named later, for the few strings that a rule flags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cleanse.formats.jsonwalk import PART_KEYS, Leaf, Mode, key_path, scalar_text, walk, walk_json

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Leaves:
    """Strings, and where each stands. ``parent`` is ascending; strings of one parent are in reading order."""

    texts: pa.LargeStringArray  # (leaves,), null where the data has null
    parent: Index  # (leaves,) row of the array that was walked
    name: Callable[[int], str]  # path below the parent: "", "[0].text", ".content"

    def __len__(self) -> int:
        return len(self.parent)

    def take(self, chosen: Index, parent: Index | None = None) -> Leaves:
        """The chosen leaves, in that order, with new parents where given."""
        name = self.name
        return Leaves(
            self.texts.take(pa.array(chosen)),
            self.parent[chosen] if parent is None else parent,
            lambda i: name(int(chosen[i])),
        )

    def moved(self, parent: Index, prefix: Callable[[int], str]) -> Leaves:
        """The same strings seen from one level above: ``parent[row]`` is the row there."""
        name, old = self.name, self.parent
        return Leaves(self.texts, parent[old], lambda i: prefix(int(old[i])) + name(i))


NOTHING = Leaves(pa.array([], pa.large_string()), np.zeros(0, np.int64), lambda _: "")


def merge(streams: Sequence[Leaves]) -> tuple[Leaves, Index, Index]:
    """Interleaves streams by parent, earlier streams first within a parent.

    Returns the merged leaves, and for each of them which stream it came from and its index there.
    """
    filled = [i for i, s in enumerate(streams) if len(s)]
    if len(filled) <= 1:
        only = streams[filled[0]] if filled else NOTHING
        return only, np.full(len(only), filled[0] if filled else 0), np.arange(len(only))
    parents = np.concatenate([s.parent for s in streams])
    order = np.argsort(parents, kind="stable")
    bases = np.concatenate([[0], np.cumsum([len(s) for s in streams])]).astype(np.int64)
    stream = np.searchsorted(bases, order, side="right") - 1
    local = order - bases[stream]
    texts = pa.concat_arrays([s.texts for s in streams]).take(pa.array(order))
    merged = Leaves(texts, parents[order], lambda i: streams[stream[i]].name(int(local[i])))
    return merged, stream, local


def missing(parent: Index, n: int) -> Index:
    """The rows of 0..n-1 that are nobody's parent."""
    seen = np.zeros(n, np.bool_)
    seen[parent] = True
    return np.flatnonzero(~seen)


def text_leaves(array: pa.Array, mode: Mode = "text") -> Leaves:
    """All strings in an array of any type, by row. See ``Mode`` for what counts as text.

    A null row gives no leaf, and binary values are not text.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return text_leaves(array.dictionary_decode(), mode)
    if isinstance(kind, pa.BaseExtensionType) and not is_json(kind):
        return text_leaves(array.storage, mode)
    for fits, walker in _WALKERS:
        if fits(kind):
            return walker(array, mode)
    return NOTHING if mode != "text" else _scalar_leaves(array)


def from_python(found: Sequence[Sequence[Leaf]]) -> Leaves:
    """Leaves from (path, text) pairs per row, for the shapes that only Python can walk."""
    paths = [path for row in found for path, _ in row]
    texts = pa.array([text for row in found for _, text in row], pa.large_string())
    counts = np.fromiter((len(row) for row in found), np.int64, len(found))
    return Leaves(texts, np.repeat(np.arange(len(found)), counts), paths.__getitem__)


def is_json(kind: pa.DataType) -> bool:
    """Whether values of this type are JSON text: Arrow's canonical extension, which ``datasets.Json`` uses."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json"


def is_string(kind: pa.DataType) -> bool:
    """Whether this is one of Arrow's three string types."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Whether this is one of Arrow's binary types."""
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(check(kind) for check in checks)


def is_list(kind: pa.DataType) -> bool:
    """Whether this is one of Arrow's list types (a map is not)."""
    checks = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(check(kind) for check in checks)


def unlist(array: pa.Array) -> tuple[pa.Array, Index, Callable[[int], str]]:
    """The items of a list array, the row of each, and what each is called there (``[2]``)."""
    if not pa.types.is_large_list(array.type):
        array = array.cast(pa.large_list(array.type.value_type))
    rows = np.asarray(pc.list_parent_indices(array), np.int64)
    return array.flatten(), rows, lambda i: f"[{i - int(np.searchsorted(rows, rows[i]))}]"


def children(array: pa.StructArray) -> dict[str, pa.Array]:
    """The fields of a struct array by name, null where the struct is null (the first of equal names)."""
    fields: dict[str, pa.Array] = {}
    for field, child in zip(array.type, array.flatten(), strict=True):
        fields.setdefault(field.name, child)
    return fields


def _present(texts: pa.LargeStringArray) -> Leaves:
    every = Leaves(texts, np.arange(len(texts)), lambda _: "")
    if texts.null_count == 0:
        return every
    return every.take(np.flatnonzero(np.asarray(texts.is_valid())))


def _list_leaves(array: pa.Array, mode: Mode) -> Leaves:
    items, rows, name = unlist(array)
    return text_leaves(items, mode).moved(rows, name)


def _struct_leaves(array: pa.StructArray, mode: Mode) -> Leaves:
    fields = children(array)
    below: Mode = "call" if mode == "call" else "part"
    if mode != "call" and "type" in fields:  # a content part such as {"type": "text", "text": ...}
        fields = {key: child for key, child in fields.items() if key in PART_KEYS}
    streams = []
    for key, child in fields.items():
        found = text_leaves(child, below)
        path = key_path(key)
        streams.append(found.moved(np.arange(len(array)), lambda _, path=path: path))  # type: ignore[misc]
    return merge(streams)[0]


def _json_leaves(array: pa.Array, mode: Mode) -> Leaves:
    return from_python([walk(walk_json(text), mode) for text in array.storage.to_pylist()])


def _scalar_leaves(array: pa.Array) -> Leaves:
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        return _present(array.cast(pa.large_string()))
    return from_python([[] if v is None else [("", scalar_text(v))] for v in array.to_pylist()])


_WALKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, Mode], Leaves]], ...] = (
    (is_json, _json_leaves),
    (is_string, lambda array, _: _present(array.cast(pa.large_string()))),
    (is_list, _list_leaves),
    (pa.types.is_struct, _struct_leaves),
    (lambda kind: pa.types.is_null(kind) or is_binary(kind), lambda *_: NOTHING),
)
