"""The packaged 3-gram table, loaded once per process, and what single letters score in it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from cleanse.rules import classes as c

Model = tuple[NDArray[np.uint16], NDArray[np.int64], NDArray[np.int64]]
UNKNOWN = 999


@cache
def model() -> Model:
    """Table, floors and ceilings, as ``surprisal_kernel`` takes them."""
    path = str(files("cleanse.rules") / "data" / "ngrams.npz")
    with np.load(path, allow_pickle=False) as stored:
        return stored["table"], stored["floors"], stored["ceilings"]


def letter_score(letter: str) -> int:
    """How unusual a letter is by itself, in eighths of a nat; ``UNKNOWN`` where its script is not modelled."""
    from cleanse.rules import surprisal_kernel as kernel  # noqa: PLC0415 - numba loads when text is measured

    table, floors, _ = model()
    packed = int(c.character_table()[ord(letter)])
    floor = int(floors[packed >> c.SCRIPT_SHIFT])
    if floor == 0:
        return UNKNOWN
    return int(kernel.score_alone(table, kernel.fold(ord(letter), packed & c.CLASS_MASK), floor))
