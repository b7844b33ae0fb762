"""Measures and the repair of text that was read in another encoding of its region."""

from __future__ import annotations

import numpy as np

from cleanse.measures import Measure, TextBatch, Values, register
from cleanse.repairs import Repair
from cleanse.repairs import register as register_repair

from . import classes as c
from . import profile_columns as col
from .mojibake import mended_text
from .profile import profile_of
from .surprisal import surprisal_of
from .transcoding import SUSPICIOUS, find_transcoding, transcode

FEWEST = 6  # characters that must have been scored
MANY_LETTERS = 8.0  # nats per character: in scripts of thousands of letters a short text may well have 5


def _judge(texts: TextBatch) -> tuple[Values, Values]:
    mendable, lossy = np.zeros(len(texts)), np.zeros(len(texts))
    rows = surprisal_of(texts)
    scored = rows[:, 1]
    script = profile_of(texts)[col.SCRIPT]
    many = np.isin(script, (c.HAN, c.HIRAGANA, c.KATAKANA, c.HANGUL))
    least = 8 * np.where(many, MANY_LETTERS, SUSPICIOUS)  # the table counts in eighths of a nat
    for segment in np.flatnonzero((scored >= FEWEST) & (rows[:, 0] >= least * scored)):
        if mended_text(texts, int(segment)) is not None:
            continue  # explained already
        found = find_transcoding(texts.text(int(segment)))
        if found is not None:
            (mendable if found.exact else lossy)[segment] = 1
    return mendable, lossy


def _mendable(texts: TextBatch) -> Values:
    return texts.once("transcoding", _judge)[0]


def _lossy(texts: TextBatch) -> Values:
    return texts.once("transcoding", _judge)[1]


register(Measure("misread_region", "flag", "Read in another encoding of its region, exactly mendable.", _mendable))
register(Measure("misread_region_lossy", "flag", "Read in another encoding of its region, with losses.", _lossy))
register_repair(Repair("transcode", transcode.__doc__ or "", transcode))
