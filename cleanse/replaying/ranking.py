"""Which rows stand out: each row's share of the step, and how far it lies from its fellows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cleanse.replaying.figures import RowFigures, StepFigures
from cleanse.replaying.steps import RowId

SPREAD_FLOOR = 0.2
"""Least spread (natural log) that rows of a batch are taken to have: with it the cut below is a factor of at least 2.
Four rows of nearly equal loss would otherwise make an outlier of a fifth that differs by a hair."""

WITNESS = {"reject": 3.5, "suspect": 1.5}
"""Deviations that a rule's word is worth in the order of suspicion. A rule that rejects is wrong about one clean record
in a thousand at most: among the rows of a step that spiked it weighs as much as a loss far out in the tail."""

_TO_SIGMA = 1.4826  # of a normal distribution, over its median absolute deviation
_TINY = 1e-12


@dataclass(frozen=True)
class Ranked:
    """A row of the step beside the others, worst first."""

    row: RowId
    score: float  # larger of the two deviations below, and what a rule adds; inf where the row is not finite
    loss: float
    grad_norm: float | None
    loss_share: float  # of the step's loss
    grad_share: float | None  # of the sum of the rows' squared gradient norms, weighted as in the step
    n_supervised: int
    loss_deviation: float  # robust standard deviations (natural log) above the median of this step and the one before
    grad_deviation: float | None
    rule_action: str = ""

    @property
    def deviation(self) -> float:
        """The larger of the two deviations: what the figures alone say."""
        return max(self.loss_deviation, -math.inf if self.grad_deviation is None else self.grad_deviation)

    def to_json(self) -> dict[str, Any]:
        """As JSON has it: figures that are not finite become strings."""
        return {k: repr(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


def rank(step: StepFigures, before: StepFigures | None = None) -> tuple[Ranked, ...]:
    """Order the rows of a step by how much they stand out.

    The loss is compared as it is (mean nats per token), the gradient as the row brought it into the step: its norm
    times its share of the window's tokens, since a short row's large norm moves nothing. ``before`` widens the
    comparison: under the same weights its rows say what is usual.
    """
    pool = [(s, r) for s in (step, *([before] if before else [])) for r in s.rows if r.n_supervised]
    losses = _Centre([r.best_loss for _, r in pool])
    grads = _Centre([_brought(s, r) for s, r in pool])
    loss_total = sum(step.weight(r) * r.best_loss for r in step.rows if math.isfinite(r.best_loss))
    square_total = sum(b * b for r in step.rows if math.isfinite(b := _brought(step, r)))
    found = []
    for r in step.rows:
        brought = _brought(step, r)
        finite = math.isfinite(r.best_loss) and (r.best_norm is None or math.isfinite(brought))
        loss_dev = losses.deviation(r.best_loss)
        grad_dev = None if r.best_norm is None else grads.deviation(brought)
        worst = max(loss_dev, -math.inf if grad_dev is None else grad_dev)
        share = step.weight(r) * r.best_loss / loss_total if loss_total and math.isfinite(r.best_loss) else math.nan
        grad_share = None if r.best_norm is None else brought**2 / square_total if square_total else 0.0
        found.append(
            Ranked(
                row=r.row,
                score=_score(worst, r, finite=finite),
                loss=r.loss,
                grad_norm=r.grad_norm,
                loss_share=share,
                grad_share=grad_share,
                n_supervised=r.n_supervised,
                loss_deviation=loss_dev,
                grad_deviation=grad_dev,
                rule_action=r.rule_action,
            )
        )
    return tuple(sorted(found, key=lambda f: -f.score))


def _score(deviation: float, row: RowFigures, *, finite: bool) -> float:
    if not row.n_supervised:
        return -math.inf
    return deviation + WITNESS.get(row.rule_action, 0.0) if finite else math.inf


def _brought(step: StepFigures, row: RowFigures) -> float:
    """The norm of the gradient that the row brings into the step, times the step's rows; NaN: not measured.

    Times the rows, so that steps of different sizes compare: a run that was killed has but a part of its last window.
    """
    return math.nan if row.best_norm is None else step.weight(row) * row.best_norm * len(step.rows)


class _Centre:
    """Median and spread of the logarithms of positive figures; those that are not finite are left out."""

    def __init__(self, values: Sequence[float]) -> None:
        logs = [math.log(max(v, _TINY)) for v in values if math.isfinite(v)]
        self._median = statistics.median(logs) if logs else math.nan
        spread = statistics.median(abs(x - self._median) for x in logs) if logs else 0.0
        self._sigma = max(_TO_SIGMA * spread, SPREAD_FLOOR)

    def deviation(self, value: float) -> float:
        """Robust standard deviations above the median (0 where there is nothing to compare)."""
        if not math.isfinite(value):
            return math.inf if not math.isnan(self._median) else 0.0
        return 0.0 if math.isnan(self._median) else (math.log(max(value, _TINY)) - self._median) / self._sigma
