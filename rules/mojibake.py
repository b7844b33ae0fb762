"""Measures of misread text: ftfy judges it, and a count of the kernel says which texts to ask about."""

from __future__ import annotations

import ftfy.badness
import numpy as np
from numpy.typing import NDArray

from cleanse.measures import Measure, Span, TextBatch, Values, register

from . import profile_columns as col
from .badness import badness_of
from .misread import mend_misread, misread_throughout, remains
from .profile import profile_of
from .ratios import share
from .transcoding import find_transcoding


def _judged(texts: TextBatch) -> NDArray[np.float64]:
    """Bad sequences before the repair and what is left after it: shape (segments, 2), computed once."""
    return texts.once("misread", _judge)[0]


def _judge(texts: TextBatch) -> tuple[NDArray[np.float64], dict[int, str]]:
    values, mended = np.zeros((len(texts), 2)), {}
    asked = np.flatnonzero(profile_of(texts)[col.UTF8_IN_TEXT] > 0)
    for segment, bad in zip(asked.tolist(), badness_of(texts, asked).tolist(), strict=True):
        text = texts.text(segment)
        # Text that is UTF-8 throughout needs no other explanation: trying them all costs more than the repair.
        throughout = misread_throughout(text)
        if throughout or (bad and find_transcoding(text) is None):
            mended[segment] = mend_misread(text, bad=throughout or bad)
            values[segment] = throughout or bad, remains(mended[segment], of=text)
    return values, mended


def mended_text(texts: TextBatch, segment: int) -> str | None:
    """The text as the repair leaves it; None where it was not misread."""
    return texts.once("misread", _judge)[1].get(segment)


def _mended(texts: TextBatch) -> Values:
    before, after = _judged(texts).T
    mended: Values = np.maximum(before - after, np.minimum(before, 1))
    return mended


def _left(texts: TextBatch) -> Values:
    return _judged(texts)[:, 1]


def _left_share(texts: TextBatch) -> Values:
    before, after = _judged(texts).T
    return share(after, before)


def _left_density(texts: TextBatch) -> Values:
    chars = profile_of(texts)[col.CHARS]
    return share(_judged(texts)[:, 1], chars)


def _spans(text: str) -> list[Span]:
    found = ftfy.badness.BADNESS_RE.finditer(text)
    return [m.span() for m, _ in zip(found, range(5), strict=False)]


_DOC = "Sequences that only misread UTF-8 makes (ftfy's badness), in texts whose bytes would be UTF-8 again"
register(Measure("mojibake", "sequences", f"{_DOC}: those that the repair mends.", _mended, _spans))
register(Measure("mojibake_left", "sequences", f"{_DOC}: those left after the repair.", _left, _spans))
register(Measure("mojibake_left_share", "share of sequences", f"{_DOC}: left after the repair, over all.",
                 _left_share, _spans))  # fmt: skip
register(Measure("mojibake_left_density", "per character", f"{_DOC}: left after the repair, per character.",
                 _left_density, _spans))  # fmt: skip
