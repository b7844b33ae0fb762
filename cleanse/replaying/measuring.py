"""The figures of a step: every row alone, and the window as the trainer normalised it, by a probe backend.

Rows go through the model one at a time or in batches that fit, so a step needs no more memory than its longest row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleanse.replaying.diagnosis import suspects
from cleanse.replaying.figures import FP16_MAX, LeftOut, RowFigures, StepFigures
from cleanse.replaying.steps import RowId
from cleanse.replaying.tokens import Encoded

PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
MOST_ON_CPU = 50_000_000
"""Parameters above which fp16 is predicted on a CPU instead of run: there it takes 14 times as long as fp32."""


@dataclass(frozen=True)
class Precision:
    """What the run computed in."""

    name: str = "fp32"
    loss_scale: float | None = None  # None: not scaled, or not known where a dynamic scaler stood


@dataclass(frozen=True)
class Worst:
    """The token of a row that the model expected least."""

    index: int  # in the row's tokens
    loss: float  # nats


@dataclass(frozen=True)
class Measured:
    """A replayed step."""

    step: StepFigures
    before: StepFigures | None
    left_out: tuple[LeftOut, ...]
    in_precision: tuple[float, float | None] | None  # (loss, gradient norm) of the window in the run's precision
    worst: Mapping[RowId, Worst]
    notes: tuple[str, ...]


class Replayer:
    """Replays steps through one model."""

    def __init__(self, probe: Any, backend: Any, precision: Precision, *, per_micro_batch: bool) -> None:
        """``probe`` and ``backend`` are a probe backend's (see ``cleanse.probing.backends``)."""
        self._probe = probe
        self._backend = backend
        self._precision = precision
        self._per_micro_batch = per_micro_batch
        self._rule_actions: Mapping[RowId, str] = {}
        self._notes: list[str] = []
        self._worst: dict[RowId, Worst] = {}

    def measure(
        self,
        micro_batches: Sequence[Sequence[Sequence[RowId]]],
        rows_before: Sequence[RowId],
        encoded: Mapping[RowId, Encoded],
        rule_actions: Mapping[RowId, str],
    ) -> Measured:
        """Replay a step and the one before it, then the step without the rows that stand out."""
        self._rule_actions = rule_actions
        units = [micro for rank in micro_batches for micro in rank]
        step = self._figures(units, encoded, watched=True)
        before = None
        if rows_before:
            before = self._figures([rows_before], encoded, watched=False)
        left_out = self._without(step, before, encoded)
        return Measured(step, before, left_out, self._window(step, encoded), self._worst, tuple(self._notes))

    def _record(self, encoded: Encoded) -> Any:
        return self._backend.ProbeRecord(ids=encoded.ids, supervised=encoded.supervised)

    def _figures(
        self, units: Sequence[Sequence[RowId]], encoded: Mapping[RowId, Encoded], *, watched: bool
    ) -> StepFigures:
        places = [(row, i) for i, unit in enumerate(units) for row in unit]
        rows = list(dict.fromkeys(row for row, _ in places))
        evidence = dict(zip(rows, self._probe.gradients([self._record(encoded[r]) for r in rows]), strict=True))
        figures = []
        for row, unit in places:
            found = evidence[row]
            if found.problem:
                self._note(f"row {row} could not be measured: {found.problem}")
            n = found.n_tokens if not found.problem else 0
            if n and found.max_token_index >= 0:
                self._worst[row] = Worst(found.max_token_index, found.max_token_loss)
            loss, norm = (found.loss, found.grad_norm) if n else (0.0, 0.0)
            figures.append(
                RowFigures(
                    row,
                    n,
                    loss,
                    norm,
                    loss_fp32=loss,
                    grad_norm_fp32=norm,
                    micro_batch=unit,
                    rule_action=self._rule_actions.get(row, ""),
                )
            )
        bare = StepFigures(
            tuple(figures),
            math.nan,
            per_micro_batch=self._per_micro_batch,
            precision=self._precision.name,
            loss_scale=self._precision.loss_scale,
        )
        if watched and self._precision.name != "fp32":
            bare = replace(bare, rows=tuple(self._in_precision(bare, r, encoded[r.row]) for r in bare.rows))
        loss, norm = self._together(bare, encoded)
        return replace(bare, loss=loss, grad_norm=norm)

    def _together(self, step: StepFigures, encoded: Mapping[RowId, Encoded], **how: Any) -> tuple[float, float]:
        taking_part = [r for r in step.rows if r.n_supervised]
        if not taking_part:
            return math.nan, math.nan  # 0/0
        found = self._probe.step(
            [self._record(encoded[r.row]) for r in taking_part], [step.weight(r) for r in taking_part], **how
        )
        return found.loss, found.grad_norm

    def _in_precision(self, step: StepFigures, row: RowFigures, encoded: Encoded) -> RowFigures:
        """The row in the run's precision, as it stood in the window; for fp16 also what float16 would have to hold."""
        if not row.n_supervised:
            return row
        record, name = self._record(encoded), self._precision.name
        how = {"weight": step.weight(row), "loss_scale": self._precision.loss_scale or 1.0}
        more: dict[str, Any] = {}
        if name == "fp16":
            watched = self._probe.half(record, dtype="float32", **how)
            more = {
                "amax": watched.activation_amax,
                "first_overflow": watched.forward_place or watched.backward_place or None,
                "safe_scale": safe_scale(watched.grad_amax),
            }
        if self._runs(name):
            try:
                found = self._probe.half(record, dtype=PRECISIONS[name], **how)
            except (ValueError, RuntimeError) as error:
                self._note(f"{name} could not be run here and is judged from fp32: {error}")
            else:
                place = found.forward_place or found.backward_place or more.get("first_overflow")
                more |= {"loss": found.loss, "grad_norm": found.grad_norm, "first_overflow": place}
        return replace(row, **more)

    def _runs(self, name: str) -> bool:
        info = self._probe.info
        if name == "fp16" and info.device == "cpu" and info.parameters > MOST_ON_CPU:
            self._note("fp16 was not run on this CPU: overflows are predicted from the largest numbers in fp32")
            return False
        return True

    def _window(self, step: StepFigures, encoded: Mapping[RowId, Encoded]) -> tuple[float, float | None] | None:
        name = self._precision.name
        if name == "fp32" or not self._runs(name):
            return None
        try:
            scale = self._precision.loss_scale or 1.0
            return self._together(step, encoded, dtype=PRECISIONS[name], loss_scale=scale)
        except (ValueError, RuntimeError):
            return None  # said above, row by row

    def _without(
        self, step: StepFigures, before: StepFigures | None, encoded: Mapping[RowId, Encoded]
    ) -> tuple[LeftOut, ...]:
        """The step again, without the rows that stand out or are not finite: normalised over what is left."""
        broken = [r.row for r in step.rows if r.n_supervised and not r.finite_fp32]
        gone = frozenset(broken or suspects(step, before))
        kept = tuple(r for r in step.rows if r.row not in gone)
        if not gone or not any(r.n_supervised for r in kept):
            return ()
        loss, norm = self._together(replace(step, rows=kept), encoded)
        return (LeftOut(gone, loss, norm),)

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)


def safe_scale(grad_amax: float) -> float | None:
    """The largest power of two by which gradients up to ``grad_amax`` can be multiplied in float16."""
    if not math.isfinite(grad_amax) or grad_amax <= 0:
        return None
    return 2.0 ** math.floor(math.log2(FP16_MAX / grad_amax))
