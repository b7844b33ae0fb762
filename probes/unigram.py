"""The unigram baseline: how surprising each token is to somebody who sees no context. NumPy only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .types import ProbeRecord

#: The counts table beside a model.
FILE_NAME = "unigram.npy"
#: Added to every count (Jeffreys' prior): a token never seen is surprising, not impossible.
PRIOR = 0.5


def surprisal(counts: NDArray[np.unsignedinteger] | NDArray[np.floating]) -> NDArray[np.float32]:
    """-log of the smoothed share of each token id, in nats, (vocabulary,)."""
    smooth = counts.astype(np.float64) + PRIOR
    return -np.log(smooth / smooth.sum()).astype(np.float32)


def load_counts(folder: Path, vocabulary: int) -> NDArray[np.uint32] | None:
    """The table shipped beside a model; None where there is none.

    Raises ValueError where its length is not the model's vocabulary.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return None
    counts: NDArray[np.uint32] = np.load(path, allow_pickle=False)
    if counts.shape != (vocabulary,):
        raise ValueError(f"{path}: {counts.shape} counts for a vocabulary of {vocabulary}")
    return counts


def estimate_counts(records: Iterable[ProbeRecord], vocabulary: int) -> NDArray[np.uint32]:
    """Counts the supervised tokens of records, for models without a table.

    Meant for the scan's own controls: every record then has the same baseline, and damage that is rare in the corpus
    stays surprising. Ids outside the vocabulary are left out.
    """
    counts = np.zeros(vocabulary, dtype=np.uint32)
    for record in records:
        ids = record.ids[record.supervised]
        counts += np.bincount(ids[(ids >= 0) & (ids < vocabulary)], minlength=vocabulary).astype(np.uint32)
    return counts
