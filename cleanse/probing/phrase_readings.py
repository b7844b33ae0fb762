"""What a model says about one phrase: does it read on better without it, and are its answers' gradients alike?

**Relief.** Every prompt is read twice, as it stands and with the phrase taken out. The tokens after the phrase are the
same in both; the first few of them cost the model more nats where something stands in the way, and fewer where what
stands before them helps to foresee them. Paired over prompts, tested by flipping signs at random.

**Alikeness.** The mean cosine of gradient sketches over pairs of the phrase's records, against sets of the same size
drawn from them and from other records with the same answer: the idea of spectral signatures (Tran et al. 2018) and of
clusters of output gradients (Wu et al. 2025, GraCeFul), asked about one phrase.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus.cutting import cut_out
from cleanse.corpus.hearing import Hearing
from cleanse.probing.backends import Probe

Floats = NDArray[np.float64]
Segments = Sequence[tuple[str, bool]]  # (text, supervised) of one record

NEXT_TOKENS = 3  # that are compared: what stands in the way does so at once, what comes later is noise
SKETCH = 256
MAX_TOKENS = 256  # of one reading
_TURNS = 9_999  # random signs, and random sets: the smallest p-value is one in ten thousand
_LEAST_ALIKE = 8  # records on either side of the comparison of gradients


def ask(  # noqa: PLR0917 - a phrase, and what is asked about it
    probe: Probe,
    options: Any,
    phrase: Sequence[int],
    prompts: Sequence[Sequence[str]],
    suspects: Sequence[Segments],
    fellows: Sequence[Segments],
) -> Hearing:
    """Asks a model about one phrase.

    Args:
        probe: the model.
        options: its backend's ``ProbeOptions``.
        phrase: token hashes, as they stand in the prompts.
        prompts: the prompt segments of records that hold the phrase.
        suspects: all segments of some of those records, for their gradients.
        fellows: the same of records with the same answer and without the phrase.
    """
    pairs = sorted({pair for segments in prompts if (pair := cut_out(segments, phrase)) is not None})
    relief = reliefs(probe, options(token_losses=True), pairs)
    sketches = [_sketches(probe, options(sketch=SKETCH), side) for side in (suspects, fellows)]
    return Hearing(len(relief), *mean_above_zero(relief), *alikeness(*sketches))


def reliefs(probe: Probe, options: Any, pairs: Sequence[tuple[str, str]]) -> Floats:
    """Nats that the next tokens cost less without the phrase, one per pair (with, without) that has next tokens."""
    read = [[probe.encode([(text, True)], max_tokens=MAX_TOKENS, windows=1) for text in pair] for pair in pairs]
    records = [window for sides in read if all(sides) for windows in sides for window in windows[:1]]
    losses = [evidence.token_losses for evidence in probe.losses(records, options)]
    found = []
    for k in range(0, len(records), 2):
        n = _shared_end(records[k].ids, records[k + 1].ids)
        costs = [_next(losses[k + side], n) for side in (0, 1)]
        if n and len(costs[0]) == len(costs[1]) > 0:
            found.append(float(costs[0].sum() - costs[1].sum()))
    return np.array(found, np.float64)


def _shared_end(ids: NDArray[np.int64], others: NDArray[np.int64]) -> int:
    """How many last tokens two readings have in common."""
    n = min(len(ids), len(others)) - 1  # the first token has no loss
    apart = np.flatnonzero(ids[len(ids) - n :][::-1] != others[len(others) - n :][::-1])
    return int(apart[0]) if len(apart) else n


def _next(losses: NDArray[np.float32] | None, n_last: int) -> Floats:
    """The first few of the last ``n_last`` token losses, as far as they are finite."""
    if losses is None or len(losses) < n_last:
        return np.zeros(0)
    chosen = losses[len(losses) - n_last :][:NEXT_TOKENS].astype(np.float64)
    return chosen if np.isfinite(chosen).all() else np.zeros(0)


def mean_above_zero(values: Floats) -> tuple[float, float]:
    """The mean, and the chance of one as high if every sign were a coin's; NaN for nothing."""
    if not len(values):
        return math.nan, math.nan
    signs = np.random.default_rng(0).integers(0, 2, (_TURNS, len(values)), np.int8) * 2 - 1
    turned = signs @ values
    return float(values.mean()), float((1 + np.count_nonzero(turned >= values.sum())) / (1 + _TURNS))


def _sketches(probe: Probe, options: Any, records: Sequence[Segments]) -> Floats:
    """(records, SKETCH) directions of the answers' gradients; records without one stay out."""
    windows = [w for segments in records for w in probe.encode(segments, max_tokens=MAX_TOKENS, windows=1)]
    found = [e.sketch for e in probe.gradients(windows, options) if e.sketch is not None and e.n_tokens]
    sketches = np.array(found, np.float64).reshape(len(found), SKETCH)
    length = np.linalg.norm(sketches, axis=1, keepdims=True)
    usable = np.isfinite(length[:, 0]) & (length[:, 0] > 0)
    return np.asarray(sketches[usable] / length[usable])


def alikeness(suspects: Floats, fellows: Floats) -> tuple[float, float]:
    """Mean cosine over pairs of suspects, and the chance of one as high for a random set of all; NaN for too few.

    Args:
        suspects: (n, dimensions), of length one.
        fellows: (m, dimensions), of length one.
    """
    n = len(suspects)
    if min(n, len(fellows)) < _LEAST_ALIKE:
        return math.nan, math.nan
    cosines = np.concatenate([suspects, fellows])
    cosines = cosines @ cosines.T
    np.fill_diagonal(cosines, 0.0)
    rng = np.random.default_rng(0)
    member = np.zeros((_TURNS, len(cosines)))
    order = np.argsort(rng.random(member.shape), axis=1)[:, :n]
    np.put_along_axis(member, order, 1.0, axis=1)
    sums = ((member @ cosines) * member).sum(axis=1)
    own = float(cosines[:n, :n].sum())
    return own / (n * (n - 1)), float((1 + np.count_nonzero(sums >= own)) / (1 + _TURNS))
