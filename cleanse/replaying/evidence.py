"""The sentences of a diagnosis. Numbers with their units; never more than three rows by name."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleanse.replaying.figures import FP16_MAX, LeftOut, RowFigures, RunLog, StepFigures
from cleanse.replaying.steps import RowId

if TYPE_CHECKING:
    from cleanse.replaying.ranking import Ranked

_NAMED = 3

SKIP_REMEDY = (
    "Resume from the checkpoint before this step with the skip list (the dataset keeps its length), "
    "and look at the row before you decide to drop it for good."
)
MASKED_REMEDY = (
    "Raise the maximum length, truncate from the left, or skip the row: a row without a supervised token teaches "
    "nothing and can turn the loss into NaN."
)
OPTIMISATION_REMEDY = (
    "No row is at fault: lower the learning rate or lengthen the warm-up, clip the gradient norm at 1, and resume from "
    "a checkpoint before the rise."
)
BROKEN_STATE_REMEDY = "Take an earlier checkpoint: the step that broke the weights lies before this one."


def named(rows: Sequence[RowId]) -> str:
    """``row 7``, ``rows 7, 9 and 12``, ``rows 7, 9, 12 and 5 more``."""
    rows = list(dict.fromkeys(rows))
    shown = [str(r) for r in rows[:_NAMED]]
    if len(rows) == 1:
        return f"row {shown[0]}"
    if len(rows) > _NAMED:
        return f"rows {', '.join(shown)} and {len(rows) - _NAMED} more"
    return f"rows {', '.join(shown[:-1])} and {shown[-1]}"


def masked(step: StepFigures, empty: Sequence[RowFigures]) -> str:
    """No supervised token where the mean is taken."""
    where = f"micro-batch {empty[0].micro_batch}" if step.per_micro_batch else "the step"
    return f"Not one supervised token in {where} ({named([r.row for r in empty])}): its mean loss is 0/0."


def broken_state(rows: int) -> str:
    """All rows NaN in fp32."""
    return (
        f"All {rows} rows of the step give NaN or infinity in single precision too: the weights of this checkpoint "
        "are already broken, and no row can be told from another."
    )


def not_finite(bad: Sequence[RowFigures]) -> str:
    """Rows that no precision saves."""
    what = "loss" if not math.isfinite(bad[0].best_loss) else "gradient"
    where = f", first in {bad[0].first_overflow}" if bad[0].first_overflow else ""
    gives = "gives" if len({r.row for r in bad}) == 1 else "give"
    return (
        f"{_sentence(named([r.row for r in bad]))} {gives} a {what} that is not finite in single precision{where}; "
        "the other rows are finite."
    )


def overflow(step: StepFigures, bad: Sequence[RowFigures], *, also_data: bool = False) -> str:
    """Finite in fp32, not in the run's precision."""
    worst = max(bad, key=lambda r: r.amax or 0.0)
    every = len(bad) == sum(1 for r in step.rows if r.n_supervised)
    who = "All rows alike" if every else _sentence(named([r.row for r in bad]))
    verb = "overflow" if every or len({r.row for r in bad}) > 1 else "overflows"
    parts = [f"{who} {verb} {step.precision}"]
    if worst.amax is not None and worst.amax > FP16_MAX:
        where = f" in {worst.first_overflow}" if worst.first_overflow else ""
        parts.append(f"with an activation of {worst.amax:.3g}{where} (fp16 ends at 65,504)")
    elif worst.safe_scale is not None:
        scale = f" at loss scale {step.loss_scale:,.0f}" if step.loss_scale is not None else ""
        safe = min(r.safe_scale for r in bad if r.safe_scale is not None)
        parts.append(f"in the backward pass{scale}: the largest safe scale is {safe:,.6g}{_median_scale(step, bad)}")
    parts.append("and is finite in single precision" if verb == "overflows" else "and are finite in single precision")
    if also_data:
        parts.append(f"where the loss is {worst.best_loss:.2f} nats and stands out as well")
    return " ".join(parts) + "."


def _median_scale(step: StepFigures, bad: Sequence[RowFigures]) -> str:
    names = {r.row for r in bad}
    others = [r.safe_scale for r in step.rows if r.safe_scale is not None and r.row not in names]
    return f" (the other rows' median is {statistics.median(others):,.6g})" if others else ""


def precision_remedy(step: StepFigures, bad: Sequence[RowFigures]) -> str:
    """What ends an overflow."""
    forward = any(r.amax is not None and r.amax > FP16_MAX for r in bad)
    safe = [r.safe_scale for r in bad if r.safe_scale is not None]
    bf16 = "bf16 ends it (its largest number is 3.4e38)"
    if step.precision != "fp16":
        return "Replay in single precision to see which operation leaves the range."
    if forward or not safe:
        return f"{bf16}; no loss scale helps against an overflow in the forward pass. Else skip the row."
    return f"A loss scale of {min(safe):,.6g} or less, or a dynamic one, ends it; so does bf16."


def carried(step: StepFigures, before: StepFigures | None, top: Sequence[Ranked], left_out: Sequence[LeftOut]) -> str:
    """One or few rows carry the spike."""
    rows = [r.row for r in top]
    verb = "carries" if len(set(rows)) == 1 else "carry"
    first = top[0]
    sentence = f"{_sentence(named(rows))} {verb} "
    if first.grad_share is not None:
        share = sum(r.grad_share or 0.0 for r in top)
        sentence += f"{share:.0%} of the squared gradient norm and {sum(r.loss_share for r in top):.0%} of the loss"
    else:
        sentence += f"{sum(r.loss_share for r in top):.0%} of the loss"
    sentence += f" (loss {first.loss:.2f} nats" + (
        f", gradient norm {first.grad_norm:.3g})" if first.grad_norm is not None else ")"
    )
    replayed = next((x for x in left_out if x.rows == frozenset(rows)), None)
    if replayed is not None:
        sentence += f"; without it the step has loss {replayed.loss:.3f} instead of {step.loss:.3f}"
        if replayed.grad_norm is not None and step.grad_norm is not None:
            sentence += f" and gradient norm {replayed.grad_norm:.3g} instead of {step.grad_norm:.3g}"
    if before is not None:
        sentence += f"; the step before has loss {before.loss:.3f}"
        sentence += f" and gradient norm {before.grad_norm:.3g}" if before.grad_norm is not None else ""
    return sentence + "."


def optimisation(step: StepFigures, log: RunLog, before: StepFigures | None = None) -> str:
    """All rows spike alike."""
    losses = [r.best_loss for r in step.rows if r.n_supervised]
    sentence = (
        f"All rows of the step spike alike: their losses run from {min(losses):.2f} to {max(losses):.2f} nats "
        f"(median {statistics.median(losses):.2f})"
    )
    norms = [r.best_norm for r in step.rows if r.best_norm is not None and r.n_supervised]
    if norms:
        sentence += f", their gradient norms from {min(norms):.3g} to {max(norms):.3g}"
    usual = [
        f"loss {log.usual_loss:.2f}" if log.usual_loss is not None else "",
        f"gradient norm {log.usual_grad_norm:.3g}" if log.usual_grad_norm is not None else "",
    ]
    if any(usual):
        sentence += f"; the run usually had {' and '.join(u for u in usual if u)}"
    elif before is not None:
        sentence += f"; the step before had loss {before.loss:.2f}"
    elif log.guess_loss is not None:
        sentence += f"; guessing costs {log.guess_loss:.2f}"
    return sentence + "." + _circumstances(log)


def _circumstances(log: RunLog) -> str:
    """Learning rate, warm-up and clipping, where the log has them."""
    said = []
    if log.learning_rate is not None:
        rate = f"The learning rate was {log.learning_rate:.3g}"
        if log.warmup_steps and log.step is not None and log.step <= log.warmup_steps:
            rate += f", {log.step} of {log.warmup_steps} steps into the warm-up"
        elif log.peak_learning_rate and log.learning_rate >= 0.9 * log.peak_learning_rate:
            rate += ", at or near its peak"
        said.append(rate)
    if log.max_grad_norm and log.grad_norm is not None and math.isfinite(log.grad_norm):
        if log.grad_norm > log.max_grad_norm:
            said.append(
                f"clipping at {log.max_grad_norm:.3g} cut the update by {log.grad_norm / log.max_grad_norm:.3g}"
            )
    elif log.max_grad_norm == 0:
        said.append("the gradient was not clipped")
    return f" {'; '.join(said)}." if said else ""


def not_reproduced(step: StepFigures, before: StepFigures | None, log: RunLog) -> str:
    """Nothing to see."""
    sentence = f"No row reproduces it: replayed, the step has loss {step.loss:.3f}"
    sentence += f" and gradient norm {step.grad_norm:.3g}" if step.grad_norm is not None else ""
    if log.grad_norm is not None or log.loss is not None:
        logged = [
            f"loss {log.loss:.3g}" if log.loss is not None else "",
            f"gradient norm {log.grad_norm:.3g}" if log.grad_norm is not None else "",
        ]
        sentence += f", the run logged {' and '.join(x for x in logged if x)}"
    if before is not None:
        sentence += f"; the step before has loss {before.loss:.3f}"
    return sentence + "."


def not_reproduced_remedy(log: RunLog) -> str:
    """What to check next."""
    checks = "that the checkpoint is the run's own at or just before the step, that these rows are those of the step "
    checks += "(a ledger knows), the optimizer's state, and the hardware (rerun the step on another device)"
    if log.grad_norm is not None and not math.isfinite(log.grad_norm):
        return f"Suspect state or hardware; check {checks}."
    return f"Check {checks}."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
