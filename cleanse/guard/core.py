"""``cleanse.Guard``: keeps the ledger, judges every step, and says what to do about a spike."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from cleanse.guard.ledger import LedgerWriter, row_ids
from cleanse.guard.ranks import AnyRank, rank_from_environment, torch_any_rank
from cleanse.guard.rules import SpikeDetector, SpikeRules
from cleanse.replaying.capsule import resume_recipe, write_capsule
from cleanse.replaying.skipping import SkipList
from cleanse.replaying.steps import RowId, once

log = logging.getLogger("cleanse.guard")


class Answer(str, Enum):
    """What the loop should do with the step it has just computed."""

    GO_ON = "go_on"
    SKIP = "skip"  # throw the gradients away: no optimizer step
    STOP = "stop"  # end the training


@dataclass(frozen=True)
class Judgement:
    """The guard's word on a step. True in a condition if the step was a spike, on this rank or another."""

    step: int
    answer: Answer
    reasons: tuple[str, ...] = ()  # this rank's; empty where another rank spiked
    spike: bool = False

    def __bool__(self) -> bool:
        return self.spike


class Guard:
    """Watches a training loop.

    In a plain loop::

        guard = cleanse.Guard("guard", action="skip")
        for ids, batch in loader:
            guard.rows(ids)                      # written down before the step can crash
            loss = model(**batch).loss
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if guard.step(loss=loss.item(), grad_norm=norm.item()).answer is Answer.SKIP:
                optimizer.zero_grad()
                continue
            optimizer.step()

    (``guard.step(ids=..., loss=...)`` does both at once.) With gradient accumulation call ``rows`` once per forward
    pass and ``step`` once per optimizer step. Frameworks: ``guard.attach(trainer)``.

    Args:
        folder: where the ledger and the capsules go; ranks share it.
        action: what to answer at a spike: ``go_on``, ``skip`` or ``stop``.
        rules: the limits.
        rank: of this process; by default from the environment, as launchers set it.
        world_size: number of ranks; likewise.
        settings: of the run, kept in the ledger's head and in capsules (trainer, seeds, batch sizes).
        record: row id -> the record, for the capsule; without it a capsule holds ids only.
        any_rank: how ranks agree on skip and stop; by default over torch.distributed, where it is in use.
        first_step: the global step that comes next; set it when a run is resumed.
        max_capsules: a run that spikes at every step must not fill the disk.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        action: Answer | str = Answer.GO_ON,
        rules: SpikeRules | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        settings: Mapping[str, Any] | None = None,
        record: Callable[[RowId], Any] | None = None,
        any_rank: AnyRank = torch_any_rank,
        first_step: int = 1,
        max_capsules: int = 20,
    ) -> None:
        try:
            self.action = Answer(action)
        except ValueError:
            raise ValueError(f"action is go_on, skip or stop, not {action!r}") from None
        here, world = rank_from_environment()
        self.folder = Path(folder)
        self.rank = here if rank is None else rank
        self.world_size = world if world_size is None else world_size
        self.settings = dict(settings or {})
        self.next_step = first_step
        self._record = record
        self.any_rank = any_rank
        self._capsules_left = max_capsules
        self._detector = SpikeDetector(rules)
        self._window: list[list[RowId]] = []
        self._ledger: LedgerWriter | None = None

    def rows(self, ids: Any) -> None:
        """Write down the rows of a forward pass that is about to run: a list, array or tensor of ids."""
        rows = row_ids(ids)
        self._open().rows(self.next_step, len(self._window), rows)
        self._window.append(rows)

    def step(
        self,
        *,
        loss: float | None,
        grad_norm: float | None = None,
        ids: Any = None,
        loss_scale: float | None = None,
        learning_rate: float | None = None,
        param_norm: float | None = None,
        step: int | None = None,
        **more: float | None,
    ) -> Judgement:
        """Record an optimizer step, before it is taken, and judge it.

        Args:
            loss: nats per token of the step, unscaled.
            grad_norm: before clipping, unscaled; NaN or infinity where it overflowed.
            ids: rows of the step, where ``rows`` was not called.
            loss_scale: of a dynamic loss scaler.
            learning_rate: of this step.
            param_norm: L2 norm of the parameters.
            step: the global step, where the loop knows better than to count from ``first_step``.
            **more: other numbers for the ledger.
        """
        if step is not None:
            self.next_step = step
        if ids is not None:
            self.rows(ids)
        number = self.next_step
        reasons = self._detector.judge(loss, grad_norm, loss_scale)
        figures = {
            "loss": loss,
            "grad_norm": grad_norm,
            "param_norm": param_norm,
            "loss_scale": loss_scale,
            "learning_rate": learning_rate,
            **more,
        }
        self._open().step(number, {**figures, "spike": list(reasons) or None})
        if reasons:
            self._tell(number, reasons, figures)
        self.next_step = number + 1
        self._window = []
        if self.action is Answer.GO_ON:
            return Judgement(number, Answer.GO_ON, reasons, bool(reasons))
        spike = self.any_rank(bool(reasons)) if self.world_size > 1 else bool(reasons)
        return Judgement(number, self.action if spike else Answer.GO_ON, reasons, spike)

    def attach(self, trainer: Any, skip: SkipList | None = None) -> Any:
        """Watch a framework's trainer; gives the trainer back.

        Args:
            trainer: a ``transformers.Trainer`` or one built on it (TRL, ms-swift, LLaMA-Factory).
            skip: rows to mask on the way (see ``cleanse.SkipCollator``).

        Raises:
            TypeError: a trainer that no integration knows.
        """
        names = {f"{c.__module__.split('.')[0]}.{c.__name__}" for c in type(trainer).__mro__}
        if "transformers.Trainer" in names:
            from cleanse.guard.huggingface import attach  # noqa: PLC0415  # loads torch and transformers

            return attach(self, trainer, skip)
        raise TypeError(
            f"no guard for {type(trainer).__module__}.{type(trainer).__name__}: "
            "call guard.rows and guard.step in the loop"
        )

    def close(self) -> None:
        """Close the ledger. Not needed: every line is on its way as it is written."""
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    @property
    def window(self) -> tuple[tuple[RowId, ...], ...]:
        """The rows of the current step so far, one tuple per forward pass."""
        return tuple(tuple(rows) for rows in self._window)

    def _open(self) -> LedgerWriter:
        """The ledger, opened at the first write: a guard that is only made leaves no file."""
        if self._ledger is None:
            self._ledger = LedgerWriter(
                self.folder, self.rank, self.world_size, first_step=self.next_step, settings=self.settings
            )
        return self._ledger

    def _tell(self, step: int, reasons: Iterable[str], figures: Mapping[str, Any]) -> None:
        rows = once(row for micro in self._window for row in micro)
        shown = ", ".join(ascii(r) if isinstance(r, str) else str(r) for r in rows[:64])
        more = f" and {len(rows) - 64} more" if len(rows) > 64 else ""  # noqa: PLR2004  # a line, not a page
        message = f"cleanse: step {step}, rank {self.rank}: {'; '.join(reasons)}. Rows: {shown or 'not known'}{more}"
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()
        if self._capsules_left <= 0:
            return
        self._capsules_left -= 1
        try:
            write_capsule(
                self.folder / f"step-{step}-rank-{self.rank}",
                step=step,
                rows=rows,
                micro_batches=(self.window,),
                records={r: self._record(r) for r in rows} if self._record else None,
                settings={**self.settings, "rank": self.rank, "world_size": self.world_size},
                figures={**figures, "reasons": list(reasons)},
                recipe=resume_recipe(step, rows, trainer=str(self.settings.get("trainer", ""))),
            )
        except Exception:
            # the training must not die of a full disk or a record that cannot be read
            log.exception("the capsule of step %d could not be written", step)
