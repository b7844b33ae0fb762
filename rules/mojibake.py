"""Text that was decoded with the wrong encoding: ftfy judges it, a kernel count says which texts to ask about."""

from __future__ import annotations

from collections.abc import Callable

import ftfy.badness
import numpy as np

from cleanse.measures import Measure, Span, TextBatch, Values, register
from cleanse.rules import profile_columns as col
from cleanse.rules.profile import profile_of
from cleanse.rules.repairs import mend_mojibake

_PIECE = 1_000_000  # characters that ftfy looks at in one go


def _badness(text: str) -> int:
    return sum(ftfy.badness.badness(text[i : i + _PIECE]) for i in range(0, len(text), _PIECE))


def _on_candidates(judge: Callable[[str], float]) -> Callable[[TextBatch], Values]:
    def compute(texts: TextBatch) -> Values:
        values = np.zeros(len(texts))
        for segment in np.flatnonzero(profile_of(texts)[:, col.UTF8_IN_TEXT] > 0):
            values[segment] = judge(texts.text(int(segment)))
        return values

    return compute


def _mendable(text: str) -> float:
    before = _badness(text)
    return float(before - _badness(mend_mojibake(text))) if before else 0.0


def _left(text: str) -> float:
    return float(_badness(mend_mojibake(text))) if _badness(text) else 0.0


def _spans(text: str) -> list[Span]:
    found = ftfy.badness.BADNESS_RE.finditer(text)
    return [m.span() for m, _ in zip(found, range(5), strict=False)]


_DOC = "Sequences that only misread UTF-8 makes (ftfy's badness), in texts whose bytes would be UTF-8 again"
register(Measure("mojibake", "sequences", f"{_DOC}: those that ftfy mends.", _on_candidates(_mendable), _spans))
register(Measure("mojibake_left", "sequences", f"{_DOC}: those left after ftfy.", _on_candidates(_left), _spans))
