"""From token losses to the features that separate damage from text. NumPy only.

What a text costs depends mostly on what it is about; what its context saves the model does not. So losses are set
against the surprisal of each token under a unigram baseline of the same tokenizer: the difference is the context gain.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .types import NAN, Floats, ProbeOptions, ProbeRecord, RawMeasures, RecordEvidence

#: Tokens a window of the smallest gain spans: long enough to average out single rare words, short enough to find one
#: damaged sentence in a long record.
WINDOW = 32
#: The largest finite float16.
FLOAT16_MAX = 65504.0


def min_window_mean(values: Floats, window: int = WINDOW) -> float:
    """The smallest mean over `window` consecutive values; over all of them where there are fewer. NaN for none."""
    if not len(values):
        return NAN
    width = min(window, len(values))
    sums = np.cumsum(np.concatenate([[0.0], values.astype(np.float64)]))
    return float((sums[width:] - sums[:-width]).min() / width)


def safe_loss_scale(grad_amax: float) -> float:
    """The largest power of two by which gradients up to `grad_amax` can be multiplied in float16. NaN for NaN or 0."""
    if not math.isfinite(grad_amax) or grad_amax <= 0:
        return NAN
    return float(2.0 ** math.floor(math.log2(FLOAT16_MAX / grad_amax)))


def evidence(
    record: ProbeRecord, raw: RawMeasures, surprisal: NDArray[np.float32], options: ProbeOptions
) -> RecordEvidence:
    """Joins what the backend measured with the unigram baseline.

    `surprisal` holds nats per token id, (vocabulary,).
    """
    if raw.problem or not record.n_tokens:
        return RecordEvidence(n_tokens=record.n_tokens, truncated=record.truncated, problem=raw.problem)
    losses = raw.token_losses
    positions = np.flatnonzero(record.supervised[1:]) + 1
    gains = surprisal[record.ids[positions]] - losses
    finite = bool(np.isfinite(losses).all())
    # A NaN loss is worse than any number: it is the worst token then.
    worst = int(np.argmax(np.where(np.isnan(losses), np.inf, losses)))
    return RecordEvidence(
        n_tokens=record.n_tokens,
        loss=float(losses.mean(dtype=np.float64)),
        max_token_loss=float(losses[worst]),
        max_token_index=int(positions[worst]),
        context_gain=float(gains.mean(dtype=np.float64)),
        min_window_gain=min_window_mean(gains),
        nats_per_byte=float(losses.sum(dtype=np.float64)) / record.n_bytes if record.n_bytes else NAN,
        grad_norm=NAN if raw.grad_norm is None else raw.grad_norm,
        loss_finite=finite,
        grad_finite=raw.grad_norm is None or math.isfinite(raw.grad_norm),
        sketch=raw.sketch,
        activation_amax=raw.activation_amax,
        grad_amax=raw.grad_amax,
        safe_loss_scale=safe_loss_scale(raw.grad_amax),
        token_losses=losses if options.token_losses else None,
        truncated=record.truncated,
    )
