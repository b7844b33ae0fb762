"""Measures of noise: how surprising the characters are to a table of what natural text of a script does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cleanse.measures import Measure, Span, TextBatch, Values, register

from . import classes as c
from . import profile_columns as col
from .mojibake import mended_text
from .ngram_model import model
from .profile import profile_of
from .ratios import share


def surprisal_of(texts: TextBatch) -> NDArray[np.int64]:
    """The surprisal kernel's columns for a batch: shape (segments, 4), computed once."""
    return texts.once("surprisal", _compute)


def _compute(texts: TextBatch) -> NDArray[np.int64]:
    from . import surprisal_kernel as kernel  # noqa: PLC0415 - numba loads when a batch is measured

    out = np.zeros((len(texts), kernel.N_COLUMNS), np.int64)
    data, offsets = np.ascontiguousarray(texts.data), np.ascontiguousarray(texts.offsets)
    known = model()
    kernel.surprisal(data, offsets, _wanted(texts), c.character_table(), known.table, known.floors, known.ceilings, out)
    return out


_FOREIGN = 12  # bytes beyond ASCII from which the screen, which knows ASCII only, has too little to say


def _wanted(texts: TextBatch) -> NDArray[np.bool_]:
    """Segments that the quick screen of the profile does not clear: few of those in plain ASCII."""
    rows = profile_of(texts)
    foreign = np.diff(texts.offsets) - rows[col.CHARS] >= _FOREIGN
    wanted: NDArray[np.bool_] = foreign | (rows[col.SCREEN] > 100 * model().screen)
    return wanted


def _nats(texts: TextBatch) -> Values:
    rows = surprisal_of(texts)
    chars = rows[:, 1].astype(np.float64)
    return share(rows[:, 0] / 8, chars, _ENOUGH)


_ENOUGH = 64  # characters under which a mean says little


def _scored(texts: TextBatch) -> Values:
    return surprisal_of(texts)[:, 1].astype(np.float64)


def _noise(texts: TextBatch) -> Values:
    """Misread text is judged as its repair leaves it: the characters that came in are no choice of the author."""
    rows = surprisal_of(texts)
    noise = rows[:, 2].astype(np.float64)
    suspected = noise > 0
    if suspected.any():
        suspected &= profile_of(texts)[col.UTF8_IN_TEXT] > 0
    for segment in np.flatnonzero(suspected):
        mended = mended_text(texts, int(segment))
        if mended is not None:
            noise[segment] = surprisal_of(TextBatch.from_texts([mended]))[0, 2]
    return noise


def _noise_share(texts: TextBatch) -> Values:
    chars = surprisal_of(texts)[:, 1].astype(np.float64)
    return share(_noise(texts), chars, _ENOUGH)


def _peak(texts: TextBatch) -> Values:
    rows = surprisal_of(texts)
    peak: Values = np.where(rows[:, 1] >= _ENOUGH, rows[:, 3] / 1000, np.nan)
    return peak


def noisy_stretches(text: str) -> list[Span]:
    """Stretches of blocks above their script's ceiling, joined where they touch."""
    spans: list[Span] = []
    step = 64
    pieces = TextBatch.from_texts([text[i : i + step] for i in range(0, len(text), step)])
    noisy = np.flatnonzero(surprisal_of(pieces)[:, 2] > 0)
    for block in noisy:
        start, end = int(block) * step, min(len(text), int(block + 1) * step)
        if spans and spans[-1][1] == start:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return sorted(spans, key=lambda s: s[0] - s[1])[:5]


register(Measure("surprisal", "nats per character", "Mean surprisal under the 3-gram table; NaN for short "
                 "texts and scripts without a model.", _nats, noisy_stretches))  # fmt: skip
register(Measure("scored_chars", "characters", "Characters of scripts that the table models.", _scored))
register(Measure("noise_chars", "characters", "Characters in blocks of 64 whose mean surprisal is above what "
                 "natural text of the script reaches.", _noise, noisy_stretches))  # fmt: skip
register(Measure("noise_share", "share of characters", "Characters in such blocks over all.", _noise_share,
                 noisy_stretches))  # fmt: skip
register(Measure("noise_peak", "of the script's ceiling", "The noisiest block over its script's ceiling.",
                 _peak, noisy_stretches))  # fmt: skip
