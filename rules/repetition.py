"""Measures of repetition, in characters' bytes: periodic stretches, and copies of what came before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cleanse.measures import Measure, Span, TextBatch, Values, register

from .ratios import share

_CONTINUES = 0x80  # the two highest bits of a byte that continues a character


def repetition_of(texts: TextBatch) -> NDArray[np.int64]:
    """The repetition kernel's columns for a batch: shape (segments, 6), computed once."""
    return texts.once("repetition", _compute)


def _compute(texts: TextBatch) -> NDArray[np.int64]:
    from . import repetition_kernel as kernel  # noqa: PLC0415 - numba loads when a batch is measured

    out = np.zeros((len(texts), kernel.N_COLUMNS), np.int64)
    kernel.repetition(np.ascontiguousarray(texts.data), np.ascontiguousarray(texts.offsets), out)
    return out


def _column(column: int, doc: str, name: str, unit: str) -> None:
    def compute(texts: TextBatch) -> Values:
        return repetition_of(texts)[:, column].astype(np.float64)

    register(Measure(name, unit, doc, compute, periodic_stretches))


def _copied_share(texts: TextBatch) -> Values:
    size = np.diff(texts.offsets).astype(np.float64)
    copied = repetition_of(texts)[:, 4]
    return share(copied, size)


def periodic_stretches(text: str) -> list[Span]:
    """The longest stretch in which a unit repeats at least eight times in a row, in characters."""
    from . import repetition_kernel as kernel  # noqa: PLC0415

    data = np.frombuffer(text.encode("utf-8"), np.uint8)
    places = np.zeros((64, 2), np.int64)
    n = kernel.stretches(data, places)
    spans = sorted(((int(a), int(b)) for a, b in places[:n]), key=lambda s: s[0] - s[1])[:5]
    before = np.cumsum((data & 0xC0) != _CONTINUES)  # characters that have begun up to and with each byte
    return [(int(before[a]) - 1, int(before[b - 1])) for a, b in spans]


_column(1, "Longest stretch in which one unit with a letter or digit repeats at least eight times in a row.",
        "repeated_stretch", "bytes")  # fmt: skip
_column(0, "Length of the unit of that stretch.", "repeated_period", "bytes")
_column(3, "How often the unit stands in that stretch.", "repeats", "repeats")
_column(2, "Longest stretch of a repeated unit without letters and digits: rulers, blanks.", "ruler_stretch",
        "bytes")  # fmt: skip
_column(5, "All stretches of repeated units together.", "repeated_bytes", "bytes")
register(Measure("copied_share", "share of bytes", "Bytes that are part of a copy of at least 24 bytes of what "
                 "came shortly before.", _copied_share, periodic_stretches))  # fmt: skip
