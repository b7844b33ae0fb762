"""What a replay measured: the figures that the diagnosis reads. No framework, no I/O."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from cleanse.replaying.steps import RowId

FP16_MAX = 65504.0  # the largest finite number of IEEE binary16


@dataclass(frozen=True)
class RowFigures:
    """One row, replayed alone.

    Losses are mean nats per supervised token; gradient norms are L2 over all trainable parameters, of that mean
    loss, unscaled. ``None`` where something was not measured. The plain figures are in the run's precision, or what
    stands in for it (fp16 is not run on a CPU: ``amax`` and ``safe_scale`` then say whether it would overflow).
    """

    row: RowId
    n_supervised: int
    loss: float
    grad_norm: float | None = None
    loss_fp32: float | None = None
    grad_norm_fp32: float | None = None
    amax: float | None = None  # largest absolute activation, module inputs and outputs
    first_overflow: str | None = None  # the first module whose input or output left the range
    safe_scale: float | None = None  # largest power-of-two loss scale at which every gradient fits in fp16
    micro_batch: int = 0  # which normalisation unit of the window the row belongs to
    rule_action: str = ""  # the strongest that a rule asks for: "reject", "suspect", or weaker

    @property
    def finite_fp32(self) -> bool:
        """Whether the row is finite in single precision (taken as so where only the run's precision was measured)."""
        loss = self.loss if self.loss_fp32 is None else self.loss_fp32
        norm = self.grad_norm if self.grad_norm_fp32 is None else self.grad_norm_fp32
        return math.isfinite(loss) and (norm is None or math.isfinite(norm))

    @property
    def best_loss(self) -> float:
        """The loss to compare rows by: single precision where there is one."""
        return self.loss if self.loss_fp32 is None else self.loss_fp32

    @property
    def best_norm(self) -> float | None:
        """The gradient norm to compare rows by: single precision where there is one."""
        return self.grad_norm if self.grad_norm_fp32 is None else self.grad_norm_fp32


@dataclass(frozen=True)
class StepFigures:
    """One step, replayed as the trainer normalises it.

    ``loss`` is the sum of the rows' losses over ``window_tokens`` supervised tokens; ``grad_norm`` the norm of its
    gradient, before clipping. ``per_micro_batch`` says that the run took a mean per micro-batch instead of dividing
    by the token count of the whole accumulation window.
    """

    rows: tuple[RowFigures, ...]
    loss: float
    grad_norm: float | None = None
    per_micro_batch: bool = False
    precision: str = "fp32"  # fp32 | bf16 | fp16
    loss_scale: float | None = None  # static, or what a dynamic scaler stood at; None: not scaled or not known

    @property
    def window_tokens(self) -> int:
        """Supervised tokens of the whole accumulation window."""
        return sum(r.n_supervised for r in self.rows)

    def weight(self, row: RowFigures) -> float:
        """What the row's mean loss is multiplied with in the step's loss (0 where nothing is supervised)."""
        if not self.per_micro_batch:
            return row.n_supervised / self.window_tokens if self.window_tokens else 0.0
        unit = sum(r.n_supervised for r in self.rows if r.micro_batch == row.micro_batch)
        units = len({r.micro_batch for r in self.rows})
        return row.n_supervised / unit / units if unit else 0.0

    def loss_without(self, left_out: Sequence[RowId]) -> float | None:
        """The step's loss, had these rows not been in it: exact, as it is a weighted mean. None: nothing left."""
        kept = [r for r in self.rows if r.row not in set(left_out) and r.n_supervised]
        weight = sum(self.weight(r) for r in kept)
        return sum(self.weight(r) * r.best_loss for r in kept) / weight if weight else None


@dataclass(frozen=True)
class LeftOut:
    """The step replayed without some of its rows."""

    rows: frozenset[RowId]
    loss: float
    grad_norm: float | None


@dataclass(frozen=True)
class RunLog:
    """What the run's own log says about the step. All optional: each is used where it is there."""

    step: int | None = None
    loss: float | None = None  # as logged at the step
    grad_norm: float | None = None
    learning_rate: float | None = None
    peak_learning_rate: float | None = None  # the highest up to the step
    warmup_steps: int | None = None
    max_grad_norm: float | None = None  # the clipping threshold
    usual_loss: float | None = None  # median of the logged values before the step
    usual_grad_norm: float | None = None
    guess_loss: float | None = field(default=None)  # ln(vocabulary): the loss of a model that has learnt nothing

    @staticmethod
    def from_history(log: Sequence[dict[str, float]], step: int, *, before: int = 50) -> RunLog:
        """From a ``log_history`` (see ``read_settings``): the entry of ``step``, and up to ``before`` earlier ones."""
        entries = sorted((e for e in log if "step" in e), key=lambda e: e["step"])
        at = [e for e in entries if e["step"] == step]
        earlier = [e for e in entries if e["step"] < step]
        rates = [e["learning_rate"] for e in earlier + at if "learning_rate" in e]

        def usual(name: str) -> float | None:
            values = [e[name] for e in earlier[-before:] if math.isfinite(e.get(name, math.nan))]
            return statistics.median(values) if values else None

        def now(name: str) -> float | None:
            return at[-1].get(name) if at else None

        return RunLog(
            step=step,
            loss=now("loss"),
            grad_norm=now("grad_norm"),
            learning_rate=now("learning_rate"),
            peak_learning_rate=max(rates) if rates else None,
            usual_loss=usual("loss"),
            usual_grad_norm=usual("grad_norm"),
        )
