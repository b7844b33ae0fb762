"""What a replay came to: the diagnosis, the figures behind it, and the way out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cleanse.replaying.capsule import json_safe, resume_recipe, write_capsule
from cleanse.replaying.content import DataRow
from cleanse.replaying.diagnosis import Diagnosis
from cleanse.replaying.figures import RunLog, StepFigures
from cleanse.replaying.locating import Located
from cleanse.replaying.measuring import Measured
from cleanse.replaying.ranking import Ranked
from cleanse.replaying.skipping import SkipList
from cleanse.replaying.steps import RowId

_HISTORY = 64  # steps of the log that a capsule keeps


@dataclass(frozen=True)
class WorstToken:
    """The token of a row that the model expected least, in its text (not escaped: the data may be hostile)."""

    index: int
    loss: float  # nats
    before: str
    text: str
    after: str


@dataclass(frozen=True)
class ReplayResult:
    """The outcome of ``cleanse.replay``.

    Attributes:
        located: which rows, and how that is known.
        diagnosis: what it was, with its evidence and remedy; its ranking has the worst row first.
        measured: the figures.
        rows: the content of the rows.
        worst_tokens: by row.
        problems: rows that could not be encoded, and why.
        log: what the run logged about the step.
        checkpoint_step: of the checkpoint that was replayed, where it says.
        bf16_finite: whether the rows that overflow fp16 are finite in bf16; None where that was no question.
        dataset_length: rows of the data, where known.
        model: as asked for, and what the probe says of itself.
        settings: what the replay ran with, for the capsule.
        notes: what the answer silently relies on.
    """

    located: Located
    diagnosis: Diagnosis
    measured: Measured
    rows: Mapping[RowId, DataRow]
    worst_tokens: Mapping[RowId, WorstToken] = field(default_factory=dict)
    problems: Mapping[RowId, str] = field(default_factory=dict)
    log: RunLog = field(default_factory=RunLog)
    checkpoint_step: int | None = None
    bf16_finite: bool | None = None
    dataset_length: int | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """``data``, ``masked``, ``precision``, ``optimisation`` or ``not_reproduced``."""
        return self.diagnosis.kind.value

    @property
    def culprits(self) -> tuple[RowId, ...]:
        """The rows at fault, worst first; empty where none is accused."""
        return self.diagnosis.culprits

    @property
    def ranking(self) -> tuple[Ranked, ...]:
        """The rows of the step, worst first."""
        return self.diagnosis.ranking

    @property
    def evidence(self) -> str:
        """Why, in one sentence or two."""
        return self.diagnosis.evidence

    @property
    def safe_loss_scale(self) -> float | None:
        """The largest power of two at which no gradient of the step overflows fp16; None where that was not asked."""
        scales = [r.safe_scale for r in self.measured.step.rows if r.safe_scale is not None]
        return min(scales) if scales else None

    @property
    def recipe(self) -> str:
        """How to go on, in words."""
        return resume_recipe(
            self.located.step,
            self.culprits,
            checkpoint_step=self.checkpoint_step,
            trainer=str(self.settings.get("trainer", "")),
        )

    @property
    def skip_list(self) -> SkipList | None:
        """The rows to skip; None where none is accused."""
        if not self.culprits:
            return None
        return SkipList(frozenset(self.culprits), self.dataset_length, self.evidence)

    def to_json(self) -> dict[str, Any]:
        """Plain values; figures that are not finite are texts."""
        step, before, measured = self.measured.step, self.measured.before, self.measured
        content = {
            "diagnosis": self.kind,
            "culprits": list(self.culprits),
            "ranking": [self._ranked(r) for r in self.ranking],
            "step": self.located.step,
            "rows": list(self.located.rows),
            "evidence": self.evidence,
            "remedy": self.diagnosis.remedy,
            "resume": self.recipe,
            "rows_before": list(self.located.rows_before),
            "known_from": self.located.known_from,
            "replayed": _step(step),
            "replayed_in_precision": _pair(measured.in_precision),
            "replayed_before": None if before is None else _step(before),
            "left_out": [
                {"rows": sorted(x.rows, key=str), "loss": x.loss, "grad_norm": x.grad_norm} for x in measured.left_out
            ],
            "logged": {k: v for k, v in vars(self.log).items() if v is not None},
            "precision": step.precision,
            "loss_scale": step.loss_scale,
            "safe_loss_scale": self.safe_loss_scale,
            "bf16_finite": self.bf16_finite,
            "model": dict(self.model),
            "checkpoint_step": self.checkpoint_step,
            "notes": list(self.notes),
        }
        made: dict[str, Any] = json_safe(content)
        return made

    def _ranked(self, ranked: Ranked) -> dict[str, Any]:
        figures = {r.row: r for r in self.measured.step.rows}[ranked.row]
        data, worst = self.rows.get(ranked.row), self.worst_tokens.get(ranked.row)
        reasons = data.reasons if data is not None else ()
        return {
            **ranked.to_json(),
            "loss_fp32": figures.loss_fp32,
            "grad_norm_fp32": figures.grad_norm_fp32,
            "activation_amax": figures.amax,
            "safe_loss_scale": figures.safe_scale,
            "first_overflow": figures.first_overflow,
            "rules": [r.rule for r in reasons],
            "reasons": [vars(r) for r in reasons],
            "worst_token": None if worst is None else vars(worst),
            "source": None if data is None else f"{data.source}:{data.number}",
            "problem": self.problems.get(ranked.row),
        }

    def write(self, folder: str | Path) -> Path:
        """Write the capsule, its page, and the skip list where rows are accused; gives the folder."""
        from cleanse.report import write_replay_report  # noqa: PLC0415 - only where a page is wanted

        located = self.located
        before = self.log.step if self.log.step is not None else located.step
        near = [e for e in located.history if before is None or e.get("step", 0) <= before][-_HISTORY:]
        written = write_capsule(
            folder,
            step=located.step,
            rows=located.rows,
            rows_before=located.rows_before,
            micro_batches=located.micro_batches,
            history=near,
            records={row: dict(data.record) for row, data in self.rows.items()},
            settings=self.settings,
            figures=self.to_json(),
            skip=self.skip_list,
            recipe=self.recipe,
            options=_options(self.settings),
        )
        write_replay_report(written)
        return written


def _options(settings: Mapping[str, Any]) -> str:
    """The options that decide the figures, for the capsule's own command."""
    names = ("tokenizer", "max_length", "truncation", "loss", "dtype", "loss_scale", "normalise")
    given = [(name, settings.get(name)) for name in names]
    return "".join(f" --{name.replace('_', '-')} {value}" for name, value in given if value is not None)


def _step(step: StepFigures) -> dict[str, Any]:
    return {"loss": step.loss, "grad_norm": step.grad_norm, "n_supervised": step.window_tokens}


def _pair(pair: tuple[float, float | None] | None) -> dict[str, Any] | None:
    return None if pair is None else {"loss": pair[0], "grad_norm": pair[1]}


def with_remark(diagnosis: Diagnosis, remark: str) -> Diagnosis:
    """The diagnosis with one more sentence of evidence."""
    return replace(diagnosis, evidence=f"{diagnosis.evidence} {remark}") if remark else diagnosis


def finite(value: float | None) -> bool:
    """Whether a figure was measured and is a finite number."""
    return value is not None and math.isfinite(value)
