"""Measures over a whole record, put on the segment concerned: empty, null, one-sided, identical."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cleanse import measures
from cleanse.measures import Measure, TextBatch, Values, register
from cleanse.records import Role

Flags = NDArray[np.bool_]


def _visible(texts: TextBatch) -> Flags:
    visible: Flags = texts.once("measure:visible_chars", measures.get("visible_chars").compute) > 0
    return visible


def _as_values(flags: Flags) -> Values:
    values: Values = flags.astype(np.float64)
    return values


def _first_of_record(texts: TextBatch) -> Flags:
    first: Flags = np.diff(texts.record, prepend=-1) != 0
    return first


def _per_record(texts: TextBatch, flags: Flags) -> Flags:
    """For each segment, whether any segment of its record has the flag."""
    counts = np.bincount(texts.record, weights=flags, minlength=texts.n_records)
    flagged: Flags = counts[texts.record] > 0
    return flagged


def _blank_supervised(texts: TextBatch) -> Values:
    """1 on supervised segments that show nothing, when nothing else of the record is trained on either."""
    blank = texts.supervised & ~_visible(texts)
    if not blank.any():
        return np.zeros(len(texts))
    trained = _per_record(texts, texts.supervised & _visible(texts))
    first = blank & (np.cumsum(blank) - 1 == _start_count(texts, blank))
    return _as_values(first & ~trained)


def _start_count(texts: TextBatch, flags: Flags) -> NDArray[np.int64]:
    """Number of flags in all segments before the record of each segment."""
    before: NDArray[np.int64] = np.cumsum(flags) - flags
    starts = np.flatnonzero(_first_of_record(texts))
    counts: NDArray[np.int64] = before[starts][np.cumsum(_first_of_record(texts)) - 1]
    return counts


def _blank_turn(texts: TextBatch) -> Values:
    """1 on supervised segments that show nothing in a record that has other supervised text."""
    if not (texts.supervised & ~_visible(texts)).any():
        return np.zeros(len(texts))
    trained = _per_record(texts, texts.supervised & _visible(texts))
    return _as_values(texts.supervised & ~_visible(texts) & trained)


def _blank_record(texts: TextBatch) -> Values:
    """1 on the first segment of a record in which no segment shows anything."""
    return _as_values(_first_of_record(texts) & ~_per_record(texts, _visible(texts)))


def _null_supervised(texts: TextBatch) -> Values:
    return _as_values(texts.is_null & texts.supervised)


def _unsupervised_record(texts: TextBatch) -> Values:
    """1 on the first segment of a record without any supervised segment."""
    return _as_values(_first_of_record(texts) & ~_per_record(texts, texts.supervised))


def _unknown_role(texts: TextBatch) -> Values:
    return _as_values(texts.role == Role.OTHER)


def _identical_pair(texts: TextBatch) -> Values:
    """1 on the rejected segment of a record whose chosen and rejected texts are the same."""
    values = np.zeros(len(texts))
    rejected = np.flatnonzero(texts.role == Role.REJECTED)
    if len(rejected) == 0:
        return values
    chosen = np.flatnonzero(texts.role == Role.CHOSEN)
    lengths = np.diff(texts.offsets)
    size = {role: np.bincount(texts.record[at], weights=lengths[at], minlength=texts.n_records)
            for role, at in (("chosen", chosen), ("rejected", rejected))}  # fmt: skip
    alike = size["chosen"] == size["rejected"]
    for segment in rejected[np.diff(texts.record[rejected], prepend=-1) != 0]:
        record = texts.record[segment]
        if alike[record] and size["chosen"][record] > 0:
            one = [texts.text(int(s)) for s in chosen[texts.record[chosen] == record]]
            two = [texts.text(int(s)) for s in rejected[texts.record[rejected] == record]]
            values[segment] = float(one == two)
    return values


for _name, _compute in (
    ("blank_supervised", _blank_supervised),
    ("blank_turn", _blank_turn),
    ("blank_record", _blank_record),
    ("null_supervised", _null_supervised),
    ("unsupervised_record", _unsupervised_record),
    ("unknown_role", _unknown_role),
    ("identical_pair", _identical_pair),
):
    register(Measure(_name, "flag", _compute.__doc__ or _name.replace("_", " "), _compute))
