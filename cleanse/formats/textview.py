"""One view of every format: segments with a role, and whether a trainer learns from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cleanse.formats.conversation import Conversations
from cleanse.formats.jsonwalk import key_path
from cleanse.formats.leaves import Index, Leaves, is_list, merge, missing, text_leaves, unlist
from cleanse.formats.roles import trained
from cleanse.formats.spec import Format, Part
from cleanse.formats.turns import Turns, turn_leaves
from cleanse.measures import TextBatch
from cleanse.records import Role


@dataclass(frozen=True)
class TextView:
    """The segments of a record batch, and where each stands in its record.

    ``texts.memo`` carries what measures of whole conversations need: ``"turns"`` (:class:`Turns`, or None where
    the format has no turns) and ``"conversations"`` (:class:`Conversations`, decoded only on demand).
    """

    texts: TextBatch
    field: Callable[[int], str]
    """``field(segment)``: "output", "messages[2].content"; ``replace_text`` understands it."""


@dataclass(frozen=True)
class _Stream:
    """The segments that one part of the format gives."""

    leaves: Leaves
    role: np.ndarray
    supervised: np.ndarray
    turns: Turns | None = None


def view(fmt: Format, batch: pa.RecordBatch) -> TextView:
    """The segments of ``batch`` by ``fmt``, in reading order, without a Python loop over typed columns.

    A column of the format that the batch lacks counts as null. Raises nothing on any column type.
    """
    streams = [stream for part in fmt.parts for stream in _streams(part, batch)]
    merged, stream, local = merge([s.leaves for s in streams])
    starts = np.concatenate([[0], np.cumsum([len(s.leaves) for s in streams])]).astype(np.int64)
    at = starts[stream] + local
    texts = TextBatch(
        *_buffers(merged.texts),
        record=merged.parent,
        role=np.concatenate([np.zeros(0, np.uint8), *(s.role for s in streams)])[at],
        supervised=np.concatenate([np.zeros(0, np.bool_), *(s.supervised for s in streams)])[at],
        is_null=np.asarray(merged.texts.is_null()),
        n_records=batch.num_rows,
    )
    texts.memo["turns"] = _join_turns([s.turns for s in streams if s.turns is not None])
    texts.memo["conversations"] = Conversations(fmt, batch)
    return TextView(texts, merged.name)


def _streams(part: Part, batch: pa.RecordBatch) -> list[_Stream]:
    index = batch.schema.get_all_field_indices(part.column)
    array = batch.column(index[0]) if index else pa.nulls(batch.num_rows)
    path = key_path(part.column).removeprefix(".")
    every = np.arange(batch.num_rows)

    def placed(leaves: Leaves) -> Leaves:
        return leaves.moved(every, lambda _: path)

    found = turn_leaves(array, part.column, from_text=part.kind == "messages")
    if found is not None:
        leaves, of_turn, turns = found
        stream = _from_turns(part, placed(leaves), of_turn, turns)
    elif part.kind == "history" and is_list(array.type) and is_list(array.type.value_type):
        stream = _from_history(part, array, placed)
    else:
        leaves = text_leaves(array)
        if not part.required and len(leaves):
            filled = np.asarray(pc.binary_length(leaves.texts)) > 0
            leaves = leaves if filled.all() else leaves.take(np.flatnonzero(filled))
        stream = _of_one_role(part, placed(leaves))
    if not part.required:
        return [stream]
    silent = missing(stream.leaves.parent, batch.num_rows)
    if len(silent) == 0:
        return [stream]
    nothing = Leaves(pa.nulls(len(silent), pa.large_string()), silent, lambda _: path)
    return [stream, _of_one_role(part, nothing)]


def _of_one_role(part: Part, leaves: Leaves) -> _Stream:
    n = len(leaves)
    return _Stream(leaves, np.full(n, part.role, np.uint8), np.full(n, part.supervised, np.bool_))


def _from_turns(part: Part, leaves: Leaves, of_turn: np.ndarray, turns: Turns) -> _Stream:
    """Segments by their turns' roles. Values of mixed JSON that are no turns have the role of their column."""
    role, weighted = turns.role[of_turn], turns.weighted[of_turn]
    learnt = trained(role) & weighted & (part.supervised or part.kind == "messages")
    if part.kind != "messages":
        plain = np.asarray(turns.name.is_null())
        if plain.all():
            return _of_one_role(part, leaves)
        role = np.where(plain[of_turn], np.uint8(part.role), role)
        learnt = np.where(plain[of_turn], part.supervised, learnt)
    if part.role in (Role.CHOSEN, Role.REJECTED):
        role = np.where(role == Role.ASSISTANT, np.uint8(part.role), role)
    return _Stream(leaves, role, learnt, turns)


def _from_history(part: Part, array: pa.Array, placed: Callable[[Leaves], Leaves]) -> _Stream:
    pairs, rows, pair_name = unlist(array)
    said, pair, side_name = unlist(pairs)
    inner = text_leaves(said)
    first = np.searchsorted(pair, pair)
    answers = (np.arange(len(pair)) - first)[inner.parent] % 2 == 1
    leaves = placed(inner.moved(pair, side_name).moved(rows, pair_name))
    role = np.where(answers, np.uint8(Role.ASSISTANT), np.uint8(Role.USER))
    return _Stream(leaves, role, answers & part.supervised)


def _join_turns(found: Sequence[Turns]) -> Turns | None:
    """Turns of several columns in one table: by record, then by column, then in reading order."""
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    columns = tuple(t.columns[0] for t in found)
    numbered = [replace(t, column=np.full(len(t), i, np.uint8)) for i, t in enumerate(found)]
    order = np.argsort(np.concatenate([t.record for t in numbered]), kind="stable")

    def joined(key: str) -> np.ndarray:
        return np.concatenate([getattr(t, key) for t in numbered])[order]

    return Turns(
        record=joined("record"),
        role=joined("role"),
        name=pa.concat_arrays([t.name for t in numbered]).take(pa.array(order)),
        column=joined("column"),
        columns=columns,
        calls=joined("calls"),
        weighted=joined("weighted"),
    )


def _buffers(texts: pa.LargeStringArray) -> tuple[np.ndarray, Index]:
    """The bytes and offsets of a string array, starting at 0, without a copy of the bytes."""
    _, offsets_buffer, data_buffer = texts.buffers()
    if len(texts) == 0 or data_buffer is None:
        return np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    offsets = np.frombuffer(offsets_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    return data, offsets - offsets[0]
