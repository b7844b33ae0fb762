"""Measures of how the turns of a conversation follow each other; no tokenizer is needed.

The value stands on the record's first segment. Formats without turns (alpaca, plain text) have no order to break.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.formats import Turns
from cleanse.measures import Measure, TextBatch, Values, register
from cleanse.records import Role

_SHOWN = 3  # breaks that a note names


def _same_side(turns: Turns) -> NDArray[np.bool_]:
    """Turns of the same speaker as the one before them in the same conversation.

    An assistant that calls a tool may speak again, and several tools may answer one call.
    """
    again = np.zeros(len(turns), np.bool_)
    if len(turns) > 1:
        together = (turns.record[1:] == turns.record[:-1]) & (turns.column[1:] == turns.column[:-1])
        speaks = np.isin(turns.role[1:], (Role.USER, Role.ASSISTANT)) & ~turns.calls[:-1]
        again[1:] = together & speaks & (turns.role[1:] == turns.role[:-1])
    return again


def _unanswered(turns: Turns) -> NDArray[np.bool_]:
    """Last turns of a conversation that are the user's."""
    last = np.ones(len(turns), np.bool_)
    last[:-1] = (turns.record[1:] != turns.record[:-1]) | (turns.column[1:] != turns.column[:-1])
    return last & (turns.role == Role.USER)


def _positions(turns: Turns) -> NDArray[np.int64]:
    """The index of each turn in its conversation."""
    starts = np.ones(len(turns), np.bool_)
    starts[1:] = (turns.record[1:] != turns.record[:-1]) | (turns.column[1:] != turns.column[:-1])
    at = np.arange(len(turns))
    first: NDArray[np.int64] = at - np.maximum.accumulate(np.where(starts, at, 0))
    return first


def _per_record(
    name: str, find: Callable[[Turns], NDArray[np.bool_]], tell: Callable[[str, int], str]
) -> Callable[[TextBatch], Values]:
    """How many turns ``find`` marks, on the first segment of each record that has turns."""

    def measured(texts: TextBatch) -> Values:
        values = np.full(len(texts), np.nan)
        turns: Turns | None = texts.memo.get("turns")
        if turns is None or len(texts) == 0:
            return values
        marked = find(turns)
        counts = np.bincount(turns.record, marked, texts.n_records)
        has_turns = np.bincount(turns.record, minlength=texts.n_records) > 0
        first = np.flatnonzero((np.diff(texts.record, prepend=-1) != 0) & has_turns[texts.record])
        values[first] = counts[texts.record[first]]
        segment_of = dict(zip(texts.record[first].tolist(), first.tolist(), strict=True))
        notes: dict[tuple[str, int], str] = texts.memo.setdefault("notes", {})
        which = np.flatnonzero(marked)
        names = turns.name.take(pa.array(which)).to_pylist()
        told: dict[int, list[str]] = {}
        for turn, position, speaker in zip(which.tolist(), _positions(turns)[which].tolist(), names, strict=True):
            told.setdefault(int(turns.record[turn]), []).append(tell(str(speaker), position))
        for record, said in told.items():
            if record in segment_of:
                notes[name, segment_of[record]] = "; ".join(said[:_SHOWN])
        return values

    return measured


for _name, _doc, _find, _tell in (
    (
        "turns_out_of_order",
        "Turns of the same speaker as the turn before",
        _same_side,
        lambda speaker, at: f"two '{speaker}' turns in a row at {at - 1} and {at}: merge them",
    ),
    (
        "unanswered_turns",
        "Conversations that end with the user's turn",
        _unanswered,
        lambda speaker, at: f"turn {at} is the last, and it is '{speaker}'",
    ),
):
    register(Measure(_name, "turns", _doc, _per_record(_name, _find, _tell)))
