"""Was it the data? From a replayed step's figures to one of five answers, with its evidence.

In this order, the first that holds:

* ``masked``: a unit that the loss is averaged over holds no supervised token, so its mean is 0/0.
* ``not_reproduced``, bad state: every row is not finite in single precision, so the weights themselves are broken.
* ``data``: one or few rows are not finite in single precision either.
* ``precision``: finite in single precision, not in the run's at its loss scale.
* ``optimisation``: all rows alike are far above what the run, or a model that guesses, had. No row is accused.
* ``data``: one or few rows stand out and carry the spike: without them it is gone.
* ``not_reproduced``: none of these.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cleanse.replaying import evidence as say
from cleanse.replaying.figures import FP16_MAX, LeftOut, RowFigures, RunLog, StepFigures
from cleanse.replaying.ranking import Ranked, rank
from cleanse.replaying.steps import RowId

OUTLIER = 3.5
"""Robust standard deviations from which a row stands out: the cut of Iglewicz and Hoaglin, "How to Detect and Handle
Outliers", 1993, for the modified z-score."""

FEW = 0.25
"""Largest share of a step's rows that can be "few" (one row always can): beyond it, rows spike alike."""

CARRIED = 0.5
"""Share of the excess, or of the squared gradient, that culprits must carry: they outweigh all other rows together."""

RISEN = 3.0
"""Factor over the run's usual gradient norm from which a step counts as risen. Between ordinary steps of a run it
moves by a factor of 2 and less."""

RISEN_NATS = 2.0
"""Nats over the run's usual loss from which the middle row counts as risen: every token became e^2, 7 times, less
likely. Rows differ by about a nat among themselves, their median by less."""

WITNESSED = 0.25
"""How much of the two measures above is asked of a row that a rule rejects: two witnesses that agree need not be as
sure as one alone. A rule that rejects is wrong about one clean record in a thousand at most."""

SCALE_POWERS = 3
"""Powers of two that a row's safe loss scale must lie below the step's median to stand out. The prediction from
single-precision amaxes is off by at most one; nearly every row overflows at the 2^24 a dynamic scaler starts from."""

GUESS_MARGIN = 0.5
"""Nats above ln(vocabulary): a middle row beyond it is predicted worse than by a model that knows nothing."""


class Kind(str, Enum):
    """What it was."""

    DATA = "data"
    MASKED = "masked"
    PRECISION = "precision"
    OPTIMISATION = "optimisation"
    NOT_REPRODUCED = "not_reproduced"


@dataclass(frozen=True)
class Diagnosis:
    """The answer: what it was, which rows, and the sentence that says why."""

    kind: Kind
    culprits: tuple[RowId, ...]
    evidence: str
    remedy: str  # what to do next, one sentence
    ranking: tuple[Ranked, ...]

    def to_json(self) -> dict[str, Any]:
        """``diagnosis``, ``culprits``, ``ranking``, ``evidence``, ``remedy``."""
        return {
            "diagnosis": self.kind.value,
            "culprits": list(self.culprits),
            "ranking": [r.to_json() for r in self.ranking],
            "evidence": self.evidence,
            "remedy": self.remedy,
        }


def diagnose(
    step: StepFigures,
    before: StepFigures | None = None,
    left_out: Sequence[LeftOut] = (),
    log: RunLog | None = None,
) -> Diagnosis:
    """Say what a step's figures show.

    Args:
        step: the step, replayed from the run's own checkpoint.
        before: the step before it under the same weights: what is usual there.
        left_out: replays without some rows. Asked for by ``suspects``; without one, shares decide.
        log: what the run recorded about the step.

    Raises:
        ValueError: the step has no rows.
    """
    if not step.rows:
        raise ValueError("a step without rows cannot be diagnosed")
    log = log or RunLog()
    ranking = rank(step, before)
    for verdict in (_masked, _broken_state, _not_finite, _overflow):
        found = verdict(step, before, ranking)
        if found is not None:
            return found
    if _all_risen(step, before, log):
        return Diagnosis(Kind.OPTIMISATION, (), say.optimisation(step, log), say.OPTIMISATION_REMEDY, ranking)
    carriers = suspects(step, before)
    if carriers and _carry(step, before, carriers, left_out):
        top = [r for r in ranking if r.row in carriers]
        return Diagnosis(Kind.DATA, carriers, say.carried(step, before, top, left_out), say.SKIP_REMEDY, ranking)
    if _risen_alike(step, before):
        return Diagnosis(Kind.OPTIMISATION, (), say.optimisation(step, log, before), say.OPTIMISATION_REMEDY, ranking)
    return Diagnosis(
        Kind.NOT_REPRODUCED, (), say.not_reproduced(step, before, log), say.not_reproduced_remedy(log), ranking
    )


def suspects(step: StepFigures, before: StepFigures | None = None) -> tuple[RowId, ...]:
    """The few rows that stand out, worst first: those to leave out for confirmation. Empty where none, or many, do."""
    out = [r.row for r in rank(step, before) if r.score == math.inf or r.deviation >= _cut(r)]
    return tuple(dict.fromkeys(out)) if _few(len(out), len(step.rows), before) else ()


def _cut(ranked: Ranked) -> float:
    """From which deviation a row is suspected."""
    return OUTLIER * (WITNESSED if ranked.rule_action == "reject" else 1.0)


def _few(count: int, of: int, before: StepFigures | None) -> bool:
    """Whether so many rows can be to blame. A step of a single row has only the step before to differ from."""
    if of == 1:
        return count == 1 and before is not None
    return 0 < count <= max(1, int(FEW * of)) and count < of


def _masked(step: StepFigures, _before: StepFigures | None, ranking: tuple[Ranked, ...]) -> Diagnosis | None:
    units: dict[int, list[RowFigures]] = {}
    for r in step.rows:
        units.setdefault(r.micro_batch if step.per_micro_batch else 0, []).append(r)
    empty = [r for rows in units.values() if not any(r.n_supervised for r in rows) for r in rows]
    if not empty:
        return None
    culprits = tuple(dict.fromkeys(r.row for r in empty))
    return Diagnosis(Kind.MASKED, culprits, say.masked(step, empty), say.MASKED_REMEDY, ranking)


def _broken_state(step: StepFigures, before: StepFigures | None, ranking: tuple[Ranked, ...]) -> Diagnosis | None:
    trained = [r for r in step.rows if r.n_supervised]
    others = [r for r in before.rows if r.n_supervised] if before else []
    if any(r.finite_fp32 for r in trained + others) or len(trained) + len(others) < 2:  # noqa: PLR2004
        return None  # a single row may be to blame itself
    return Diagnosis(Kind.NOT_REPRODUCED, (), say.broken_state(len(trained)), say.BROKEN_STATE_REMEDY, ranking)


def _not_finite(step: StepFigures, _before: StepFigures | None, ranking: tuple[Ranked, ...]) -> Diagnosis | None:
    bad = [r for r in step.rows if r.n_supervised and not r.finite_fp32]
    if not bad:
        return None
    culprits = tuple(dict.fromkeys(r.row for r in bad))
    return Diagnosis(Kind.DATA, culprits, say.not_finite(bad), say.SKIP_REMEDY, ranking)


def _overflow(step: StepFigures, before: StepFigures | None, ranking: tuple[Ranked, ...]) -> Diagnosis | None:
    trained = [r for r in step.rows if r.n_supervised]
    bad = [r for r in trained if _not_finite_in_run(step, r)]
    if not bad:
        return None
    few = _few(len(bad), len(trained), before)
    culprits = tuple(dict.fromkeys(r.row for r in bad)) if few else ()
    # an overflow of a row that also carries the spike in single precision is that row's fault, not the format's
    if few and _stands_out(ranking, culprits):
        return Diagnosis(Kind.DATA, culprits, say.overflow(step, bad, also_data=True), say.SKIP_REMEDY, ranking)
    return Diagnosis(Kind.PRECISION, culprits, say.overflow(step, bad), say.precision_remedy(step, bad), ranking)


def _stands_out(ranking: tuple[Ranked, ...], rows: tuple[RowId, ...]) -> bool:
    found = [r for r in ranking if r.row in rows]
    return all(max(r.loss_deviation, r.grad_deviation or -math.inf) >= OUTLIER for r in found)


def _not_finite_in_run(step: StepFigures, row: RowFigures) -> bool:
    if not math.isfinite(row.loss) or (row.grad_norm is not None and not math.isfinite(row.grad_norm)):
        return True
    if step.precision != "fp16":
        return False
    if row.amax is not None and row.amax > FP16_MAX:
        return True
    if row.safe_scale is None:
        return False
    if step.loss_scale is not None:
        return row.safe_scale < step.loss_scale
    scales = [r.safe_scale for r in step.rows if r.safe_scale is not None]
    return bool(row.safe_scale * 2.0**SCALE_POWERS <= statistics.median(scales))


def _all_risen(step: StepFigures, before: StepFigures | None, log: RunLog) -> bool:
    """Whether the middle row, not just the batch, is far above what the run had or what guessing costs.

    The rows of the step before must show it too: they meet the same weights. Where they are as usual, the weights are
    sound, and this step's rows are unlike the others, unless each one is predicted worse than by guessing.
    """
    return _risen(step, log) and (before is None or _risen(before, log) or _worse_than_guessing(step, log))


def _worse_than_guessing(step: StepFigures, log: RunLog) -> bool:
    losses = [r.best_loss for r in step.rows if r.n_supervised]
    return len(losses) > 1 and log.guess_loss is not None and min(losses) > log.guess_loss + GUESS_MARGIN


def _risen(step: StepFigures, log: RunLog) -> bool:
    losses = [r.best_loss for r in step.rows if r.n_supervised and math.isfinite(r.best_loss)]
    if not losses:
        return False
    middle = statistics.median_low(losses)  # of two rows the smaller: one alone is no middle
    if log.guess_loss is not None and middle > log.guess_loss + GUESS_MARGIN:
        return True
    if log.usual_loss is not None and middle > log.usual_loss + RISEN_NATS:
        return True
    # One large row can lift the batch: compare what the norm would be if no row were larger than the middle one.
    return log.usual_grad_norm is not None and _like_the_middle(step) > RISEN * log.usual_grad_norm


def _like_the_middle(step: StepFigures) -> float:
    """The batch's gradient norm with every row's part cut down to the middle row's: what it is without outliers."""
    parts = [step.weight(r) * r.best_norm for r in step.rows if r.best_norm is not None and r.n_supervised]
    if not parts or step.grad_norm is None:
        return 0.0
    middle = statistics.median_low(parts)
    cut = math.sqrt(sum(min(p, middle) ** 2 for p in parts) / max(sum(p * p for p in parts), 1e-300))
    return step.grad_norm * cut


def _risen_alike(step: StepFigures, before: StepFigures | None) -> bool:
    """Whether the step as a whole rose over the step before, its middle row with it."""
    if before is None or len(step.rows) == 1 or not any(r.n_supervised for r in before.rows):
        return False
    now = statistics.median_low(r.best_loss for r in step.rows if r.n_supervised)
    then = statistics.median(r.best_loss for r in before.rows if r.n_supervised)
    return now > then + RISEN_NATS or (
        bool(before.grad_norm) and _like_the_middle(step) > RISEN * (before.grad_norm or 0)
    )


def _carry(step: StepFigures, before: StepFigures | None, rows: tuple[RowId, ...], left_out: Sequence[LeftOut]) -> bool:
    """Whether these rows carry the step's excess, of its gradient or of its loss."""
    rejected = all(r.rule_action == "reject" for r in step.rows if r.row in rows)
    needed = CARRIED * (WITNESSED if rejected else 1.0)
    for replayed in left_out:
        if replayed.rows == frozenset(rows):
            usual = before.grad_norm if before else None
            norm_gone = _gone(step.grad_norm, replayed.grad_norm, usual, needed)
            return norm_gone or _loss_gone(step, before, replayed.loss, needed)
    square = [(r.row, (step.weight(r) * r.best_norm) ** 2) for r in step.rows if r.best_norm is not None]
    total = sum(s for _, s in square)
    if total and sum(s for row, s in square if row in rows) >= needed * total:
        return True
    without = step.loss_without(rows)
    return without is not None and _loss_gone(step, before, without, needed)


def _loss_gone(step: StepFigures, before: StepFigures | None, without: float, needed: float) -> bool:
    return _gone(step.loss, without, before.loss if before else None, needed)


def _gone(value: float | None, without: float | None, usual: float | None, needed: float) -> bool:
    """Whether leaving rows out takes at least the share ``needed`` of the excess over the usual figure away.

    Without a usual figure (no step before) the whole value stands for the excess.
    """
    if value is None or without is None:
        return False
    excess = value - (usual or 0.0)
    return excess > 0 and value - without >= needed * excess
