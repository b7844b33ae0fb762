"""What half precision would make of the measured records: which overflow, and which would hold the loss scale down.

Float16 ends at 65,504. A record overflows going forward where an activation is larger, whatever the loss scale; going
back where a gradient times the loss scale is. With a dynamic scale nearly every record overflows at the start (2^24),
so a record is told only where the scale it can bear lies far below the median of the unsuspected ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

FLOAT16_MAX = 65_504.0
MARGIN = 8.0
"""How far below the median's a record's safe loss scale must lie: three powers of two, the prediction being exact to
one of them."""

COMMON = 0.01
"""Where a larger share of unsuspected records overflows, the model does, and no record is to blame."""

OVERFLOW, LOW_SCALE = "probe.fp16-overflow", "probe.loss-scale"


@dataclass(frozen=True)
class Half:
    """One record that half precision does not bear."""

    row: int  # of the measured table
    conclusion: str
    value: float
    limit: float
    message: str


@dataclass(frozen=True)
class HalfRun:
    """What is said about all records together, and about single ones."""

    median_safe_scale: float  # NaN where nothing was measured
    found: tuple[Half, ...]
    notes: tuple[str, ...]


def half_run(measured: pa.Table, loss_scale: float | None) -> HalfRun:
    """Judges the maxima of ``measure.SCHEMA``; ``loss_scale`` is that of the run to come, None for a dynamic one."""
    activation, gradient, safe = (
        measured.column(name).to_numpy() for name in ("activation_amax", "grad_amax", "safe_loss_scale")
    )
    ordinary = np.isfinite(safe) & ~measured.column("suspect").to_numpy()
    middle = float(np.median(safe[ordinary])) if ordinary.any() else float("nan")
    found: list[Half] = []
    notes: list[str] = []
    with np.errstate(invalid="ignore"):
        forward = activation > FLOAT16_MAX
        backward = gradient * (loss_scale or 0.0) > FLOAT16_MAX
    for over, words in (
        (forward, "an activation exceeds 65,504"),
        (backward, f"a gradient times the loss scale {loss_scale or 0:g} exceeds 65,504"),
    ):
        share = float(over[ordinary].mean()) if ordinary.any() else 0.0
        if share > COMMON:
            notes.append(
                f"in fp16 {words} in {share:.0%} of the unsuspected records: the run is at fault, not a record"
            )
            over[:] = False
    found += [_forward(int(i), float(activation[i])) for i in np.flatnonzero(forward)]
    found += [_backward(int(i), float(gradient[i]), float(loss_scale or 0), middle) for i in np.flatnonzero(backward)]
    with np.errstate(invalid="ignore"):
        low = (safe * MARGIN <= middle) & ~forward & ~backward
    found += [_low(int(i), float(safe[i]), middle) for i in np.flatnonzero(low)]
    return HalfRun(middle, tuple(found), tuple(notes))


def _forward(row: int, amax: float) -> Half:
    message = f"an activation of {amax:,.0f}, where fp16 ends at 65,504: the loss is not finite, at any loss scale"
    return Half(row, OVERFLOW, amax, FLOAT16_MAX, message)


def _backward(row: int, amax: float, scale: float, middle: float) -> Half:
    message = (
        f"a gradient of {amax:.3g} times the loss scale {scale:g} exceeds 65,504; "
        f"half of the unsuspected records bear a scale of {middle:g}"
    )
    return Half(row, OVERFLOW, amax * scale, FLOAT16_MAX, message)


def _low(row: int, safe: float, middle: float) -> Half:
    message = f"the largest loss scale it bears in fp16 is {safe:g}, where the median record bears {middle:g}"
    return Half(row, LOW_SCALE, safe, middle / MARGIN, message)
