"""The rows of one training step, and the error that says why they cannot be known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

RowId = int | str
"""A row of the data as the user counts it: a 0-based number, or an id of their own."""


class OrderUnknown(Exception):  # noqa: N818  # an answer rather than a fault: the order is unknown
    """The rows of a step cannot be worked out from the settings alone.

    The message says why, and what would tell: usually a ledger, which ``cleanse.Guard`` writes during training.
    """

    def __init__(self, why: str, remedy: str = "") -> None:
        self.why = why
        self.remedy = remedy or (
            "Train with cleanse.Guard, which records the rows of every step, and give its ledger: --ledger FILE."
        )
        super().__init__(f"{why} {self.remedy}")


@dataclass(frozen=True)
class StepRows:
    """Which rows went into one optimizer step.

    ``micro_batches[rank][k]`` holds the row ids of that rank's k-th forward pass in the step, in their order; a row
    that pads an incomplete round appears wherever it was fed. It is empty where the rows of the step are known but
    their division over ranks is not (``notes`` of the order say so).
    """

    step: int  # global step as the trainer counts it: the first is 1
    epoch: int | None  # from 0; None where a ledger told the rows
    update: int | None  # steps of this epoch before this one
    rows: tuple[RowId, ...]  # every row of the step once, in the order fed, rank by rank
    rows_before: tuple[RowId, ...]  # the same for the step before; empty for the first step
    micro_batches: tuple[tuple[tuple[RowId, ...], ...], ...]

    @property
    def batch_id(self) -> str:
        """``step-<N>``: what ``cleanse replay --batch-id`` takes."""
        return f"step-{self.step}"


def once(rows: Iterable[RowId]) -> tuple[RowId, ...]:
    """The rows without repetition, in the order of their first appearance."""
    return tuple(dict.fromkeys(rows))
