"""The packaged 3-gram table, loaded once per process, and what single letters score in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from cleanse.measures import TextBatch

from . import classes as c

UNKNOWN = 999


@dataclass(frozen=True)
class NgramModel:
    """What ``scripts/build_ngram_table.py`` stores, as the kernels take it."""

    table: NDArray[np.uint16]  # hash table of 3-grams, 2-grams and 1-grams: see surprisal_kernel
    floors: NDArray[np.int64]  # (256,) score of an unknown character by script; 0: the script is not modelled
    ceilings: NDArray[np.int64]  # (256,) highest sum of a natural block by script
    pairs: NDArray[np.uint8]  # (128 * 128,) scores of ASCII pairs, for the quick screen
    screen: float  # mean score of a pair above which a text is looked at with the 3-grams


@cache
def model() -> NgramModel:
    """The packaged model. Without the file (before it is built) nothing is modelled and nothing is noise."""
    path = files(__package__) / "data" / "ngrams.npz"
    if not path.is_file():
        none = np.zeros(256, np.int64)
        return NgramModel(np.zeros(9, np.uint16), none, none + 1, np.zeros(128 * 128, np.uint8), 0.0)
    with np.load(str(path), allow_pickle=False) as stored:
        return NgramModel(
            stored["table"], stored["floors"], stored["ceilings"], stored["pairs"], float(stored["screen"])
        )


def letter_score(letter: str) -> int:
    """How unusual a letter is by itself, in eighths of a nat; ``UNKNOWN`` where its script is not modelled."""
    from . import surprisal_kernel as kernel  # noqa: PLC0415 - numba loads when text is measured

    packed = int(c.character_table()[ord(letter)])
    floor = int(model().floors[packed >> c.SCRIPT_SHIFT])
    if floor == 0:
        return UNKNOWN
    return int(kernel.score_alone(model().table, kernel.fold(ord(letter), packed & c.CLASS_MASK), floor))


def mean_surprisal(text: str) -> float:
    """Nats per character of one text; NaN when nothing of it is modelled."""
    from . import surprisal_kernel as kernel  # noqa: PLC0415 - numba loads when text is measured

    texts, known = TextBatch.from_texts([text]), model()
    out = np.zeros((1, kernel.N_COLUMNS), np.int64)
    every = np.ones(1, np.bool_)
    characters = c.character_table()
    kernel.surprisal(texts.data, texts.offsets, every, characters, known.table, known.floors, known.ceilings, out)
    return float(out[0, 0] / kernel.EIGHTHS / out[0, 1]) if out[0, 1] else float("nan")
