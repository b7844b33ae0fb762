"""Measures of whole records as the trainer will have them; the value stands on the record's first segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cleanse.measures import Measure, TextBatch, Values, register
from cleanse.trainer_view.memo import MEMO

if TYPE_CHECKING:  # not needed without a tokenizer
    from cleanse.trainer_view import TokenContext
    from cleanse.trainer_view.records import RecordReport


def _per_record(
    name: str, compute: Callable[[RecordReport, int | None], NDArray[np.float64]]
) -> Callable[[TextBatch], Values]:
    """A measure's compute: one value per record, put on its first segment, with the words that go with it."""

    def measured(texts: TextBatch) -> Values:
        values = np.full(len(texts), np.nan)
        context: TokenContext | None = texts.memo.get(MEMO)
        if context is None or len(texts) == 0:
            return values
        report = context.of(texts).records
        found = compute(report, context.trainer.max_length)
        first = np.flatnonzero(np.diff(texts.record, prepend=-1) != 0)
        values[first] = found[texts.record[first]]
        notes = texts.memo.setdefault("notes", {})
        segment_of = dict(zip(texts.record[first].tolist(), first.tolist(), strict=True))
        for record, words in report.words.items():
            if record in segment_of:
                notes[name, segment_of[record]] = words
        return values

    return measured


def _flag(flags: NDArray[np.bool_]) -> NDArray[np.float64]:
    return flags.astype(np.float64)


def _over(report: RecordReport, limit: int | None) -> NDArray[np.float64]:
    """Tokens beyond the maximum length; exact where above 0."""
    if limit is None:
        return np.full(len(report.tokens), np.nan)
    return np.maximum(report.tokens - limit, 0.0)


def _over_expanded(report: RecordReport, limit: int | None) -> NDArray[np.float64]:
    if limit is None:
        return np.full(len(report.tokens), np.nan)
    return np.maximum(report.expanded - limit, 0.0)


for _name, _unit, _doc, _compute in (
    ("supervised_left", "tokens", "Supervised tokens left after truncation", lambda r, _: r.left),
    ("template_refused", "flag", "The chat template raises on the record", lambda r, _: _flag(r.refused)),
    ("preparation_failed", "flag", "The tokenizer panics on the rendered record", lambda r, _: _flag(r.failed)),
    ("tokens_over_length", "tokens too many", "Tokens of the whole record beyond the maximum length", _over),
    (
        "expanded_over_length",
        "tokens too many",
        "Tokens beyond the maximum length once every image placeholder is expanded",
        _over_expanded,
    ),
    ("stop_token_lost", "flag", "Truncation takes the only end token that carries loss", lambda r, _: r.stop_lost),
    (
        "pair_identical_when_cut",
        "flag",
        "Chosen and rejected differ, and are the same after truncation",
        lambda r, _: r.same_pair,
    ),
    (
        "response_marker_lost",
        "flag",
        "The response marker is not among the ids of the record",
        lambda r, _: r.marker_lost,
    ),
):
    register(Measure(_name, _unit, _doc, _per_record(_name, _compute)))
