"""When is a step a spike? Four rules over what a step reports; none of them can be poisoned by a NaN."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque
from dataclasses import dataclass

LOSS_SPREAD = 0.05
"""Least spread (natural log) that losses of ordinary steps are taken to have: a mean over some dozen rows moves by
about 5 %. Without a floor, a run of nearly equal losses would make a spike of any other."""

NORM_SPREAD = 0.2
"""The same for gradient norms, which move more."""

_TO_SIGMA = 1.4826  # of a normal distribution, over its median absolute deviation


@dataclass(frozen=True)
class SpikeRules:
    """The limits. ``None`` switches a rule off."""

    max_loss: float | None = 10.0
    """Nats per token. Guessing among 22,000 tokens costs 10: a model that has learnt anything lies below."""

    max_z: float | None = 6.0
    """Robust standard deviations above the window's median, for the loss and for the gradient norm. Six over 128 steps
    is OLMo-core's choice; its mean and deviation take NaN in, the median and its deviation here never do."""

    window: int = 128
    """Steps that the median looks back over."""

    min_history: int = 20
    """Finite steps before the median is trusted: the first steps of a run fall fast."""

    min_loss_scale: float | None = 1.0
    """A loss scale that falls to this or below has met overflow at every scale."""

    max_overflows: int = 8
    """Overflows in a row that a loss scaler may skip without a word. Starting from 2^24 it takes several."""

    climb: float | None = 4.0
    """Factor by which the gradient norm may climb over the window, quarter by quarter, before it is diverging."""


class SpikeDetector:
    """Judges step after step. Feed every step once, in order."""

    def __init__(self, rules: SpikeRules | None = None) -> None:
        self.rules = rules or SpikeRules()
        self._losses: deque[float] = deque(maxlen=self.rules.window)
        self._norms: deque[float] = deque(maxlen=self.rules.window)
        self._overflows = 0
        self._scale_was_higher = False
        self._climbing = False

    def judge(
        self, loss: float | None, grad_norm: float | None = None, loss_scale: float | None = None
    ) -> tuple[str, ...]:
        """Why this step is a spike: one sentence each, worst first. Empty for an ordinary step.

        Args:
            loss: nats per token, unscaled.
            grad_norm: before clipping, unscaled.
            loss_scale: of a scaler that skips steps that overflow; ``None`` without one.
        """
        reasons = [
            *self._not_finite(loss, grad_norm, loss_scale),
            *self._absolute(loss),
            *self._deviates("loss", loss, self._losses, floor=LOSS_SPREAD),
            *self._deviates("gradient norm", grad_norm, self._norms, floor=NORM_SPREAD),
            *self._scale(loss_scale),
        ]
        # only now: a step is judged against those before it
        for value, window in ((loss, self._losses), (grad_norm, self._norms)):
            if value is not None and math.isfinite(value):
                window.append(value)
        return (*reasons, *self._climbs())

    def _not_finite(self, loss: float | None, grad_norm: float | None, loss_scale: float | None) -> list[str]:
        if loss is not None and not math.isfinite(loss):
            return [f"the loss is {loss}"]
        if grad_norm is None or math.isfinite(grad_norm):
            self._overflows = 0
            return []
        self._overflows += 1
        if loss_scale is None:
            return [f"the gradient norm is {grad_norm}"]
        if self._overflows == self.rules.max_overflows:
            return [f"the gradient overflowed {self._overflows} times in a row, last at loss scale {loss_scale:,.6g}"]
        return []  # the scaler skips the step and lowers its scale: that is its work

    def _absolute(self, loss: float | None) -> list[str]:
        limit = self.rules.max_loss
        if limit is None or loss is None or not limit < loss < math.inf:
            return []
        return [f"the loss is {loss:.3f} (limit {limit:g})"]

    def _deviates(self, name: str, value: float | None, window: deque[float], *, floor: float) -> list[str]:
        """Deviation of the logarithm, so that a run's scale does not matter; ``floor`` is the least spread assumed."""
        limit = self.rules.max_z
        if limit is None or value is None or not math.isfinite(value) or len(window) < self.rules.min_history:
            return []
        usual = statistics.median(window)
        if usual <= 0 or value <= usual:
            return []
        logs = [abs(math.log(max(x, 1e-300) / usual)) for x in window]
        z = math.log(value / usual) / max(_TO_SIGMA * statistics.median(logs), floor)
        if z <= limit:
            return []
        return [f"the {name} is {value:.3g}, {z:.1f} robust deviations above the {usual:.3g} of {len(window)} steps"]

    def _scale(self, loss_scale: float | None) -> list[str]:
        limit = self.rules.min_loss_scale
        if limit is None or loss_scale is None:
            return []
        if loss_scale > limit:
            self._scale_was_higher = True
            return []
        fell, self._scale_was_higher = self._scale_was_higher, False
        return [f"the loss scale fell to {loss_scale:g}"] if fell else []

    def _climbs(self) -> list[str]:
        """Every quarter of the window above the one before, and the last far above the first. Said once per climb."""
        limit = self.rules.climb
        quarter = self.rules.window // 4
        if limit is None or quarter < 2 or len(self._norms) < 4 * quarter:  # noqa: PLR2004  # a median needs two
            return []
        norms = list(self._norms)[-4 * quarter :]
        medians = [statistics.median(norms[i * quarter : (i + 1) * quarter]) for i in range(4)]
        rising = all(b > a for a, b in itertools.pairwise(medians)) and medians[3] > limit * medians[0]
        said, self._climbing = self._climbing, rising
        if not rising or said:
            return []
        return [f"the gradient norm climbs steadily: {medians[0]:.3g} to {medians[3]:.3g} within {4 * quarter} steps"]
