"""From a step to the rows that went into it: ``cleanse.order``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from cleanse.replaying.megatron import MegatronIndex
from cleanse.replaying.runfiles import read_settings
from cleanse.replaying.settings import RunSettings, make_settings
from cleanse.replaying.shuffles import Indices
from cleanse.replaying.steps import OrderUnknown, RowId, StepRows, once
from cleanse.replaying.trainers import Recipe, recipe


class RowIds(Protocol):
    """From an index of the trainer's dataset to the row, or the rows, that it holds."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> RowId | Iterable[RowId]: ...


class Order:
    """The order of one run: ``at(step)`` gives the rows of any optimizer step.

    Attributes:
        settings: what the order was worked out from.
        notes: what it silently relies on, one sentence each.
        steps_per_epoch: optimizer steps in an epoch; with a carried accumulation window, rounded down.
    """

    def __init__(self, settings: RunSettings, made: Recipe, row_ids: RowIds | None = None) -> None:
        self.settings = settings
        self.notes = made.notes
        self._recipe = made
        self._row_ids = row_ids
        self._cached: tuple[int, Indices] | None = None
        self._micros = made.layout.micro_batches
        self._accum = settings.accum if made.per_rank else 1
        if self._micros == 0:
            raise ValueError(f"{settings.rows} rows do not fill one batch, and drop_last drops what does not")
        if made.tail == "drop" and self._micros < self._accum:
            raise ValueError(f"an epoch has {self._micros} batches: too few to accumulate {self._accum}")

    @property
    def steps_per_epoch(self) -> int:
        """See the class."""
        if self._recipe.tail == "step":
            return -(-self._micros // self._accum)
        return max(1, self._micros // self._accum)

    def at(self, step: int) -> StepRows:
        """The rows of a global step.

        Args:
            step: as the trainer counts, the first step being 1.

        Raises:
            ValueError: ``step`` is below 1.
            OrderUnknown: the step lies where these settings say nothing.
        """
        if step < 1:
            raise ValueError(f"steps count from 1; there is no step {step}")
        window = self._window(step)
        ranks = range(self.settings.world_size) if self._recipe.per_rank else range(1)
        before: tuple[RowId, ...] = ()
        if step > 1:
            earlier = self._window(step - 1)
            before = once(row for rank in ranks for e, k in earlier for row in self._rows_of(e, rank, k))
        micro_batches = tuple(tuple(self._rows_of(e, rank, k) for e, k in window) for rank in ranks)
        epoch, k = window[0]
        return StepRows(
            step=step,
            epoch=epoch,
            update=k // self._accum,
            rows=once(row for rank in micro_batches for batch in rank for row in batch),
            rows_before=before,
            micro_batches=micro_batches if self._recipe.per_rank else (),
        )

    def epoch_after(self, step: int) -> float:
        """The fractional epoch that a Hugging Face ``trainer_state.json`` shows once ``step`` is done."""
        epoch, k = self._window(step)[-1]
        return epoch + (k + 1) / self._micros

    def check_epoch(self, step: int, epoch: float) -> None:
        """Compare with what the run itself recorded.

        Raises:
            OrderUnknown: the run was elsewhere at that step, so some setting is not the run's.
        """
        if step >= 1 and abs(self.epoch_after(step) - epoch) > 0.5 / self._micros:
            raise OrderUnknown(
                f"The run recorded epoch {epoch:.6g} at step {step}; with these settings it would be "
                f"{self.epoch_after(step):.6g}: rows, batch size, accumulation or world size are not those of the run.",
                "Correct them, or give a ledger.",
            )

    def _window(self, step: int) -> list[tuple[int, int]]:
        """(epoch, forward pass in it) of every forward pass in the step."""
        if self._recipe.tail == "carry":
            passes = range((step - 1) * self._accum, step * self._accum)
            return [divmod(k, self._micros) for k in passes]
        epoch, update = divmod(step - 1, self.steps_per_epoch)
        resumed = self.settings.resumed_at
        if self.settings.ignore_data_skip:
            if resumed is None:
                raise OrderUnknown(
                    "With ignore_data_skip the resumed run starts its epoch again from the first row.",
                    "Say at which step it was resumed (resumed_at), or give a ledger.",
                )
            if step > resumed:
                epoch, update = self._replayed(step, resumed)
        first = update * self._accum
        return [(epoch, k) for k in range(first, min(first + self._accum, self._micros))]

    def _replayed(self, step: int, resumed: int) -> tuple[int, int]:
        """Where a run that did not skip data is: its epoch began again, whole, at the step it was resumed from."""
        epochs, update = divmod(step - 1 - resumed, self.steps_per_epoch)
        return resumed // self.steps_per_epoch + epochs, update

    def _rows_of(self, epoch: int, rank: int, k: int) -> tuple[RowId, ...]:
        if self._cached is None or self._cached[0] != epoch:
            self._cached = (epoch, self._recipe.epoch_order(epoch))
        indices = self._cached[1][self._recipe.layout.positions(rank, k)]
        if self._row_ids is None:
            return tuple((indices if self._recipe.before is None else self._recipe.before[indices]).tolist())
        return tuple(row for index in indices.tolist() for row in _held(self._row_ids[index]))


def _held(entry: RowId | Iterable[RowId]) -> tuple[RowId, ...]:
    """The rows in one entry of ``row_ids``, once each: packs name a row per token."""
    if isinstance(entry, Iterable) and not isinstance(entry, str):
        return once(row if isinstance(row, str) else int(row) for row in entry)
    return (entry if isinstance(entry, str) else int(entry),)


def order(
    trainer: str | None = None,
    rows: int | None = None,
    *,
    config: str | Path | Sequence[str | Path] | None = None,
    row_ids: RowIds | None = None,
    index_files: str | Path | None = None,
    **settings: Any,
) -> Order:
    """Work out which rows a trainer feeds at each step.

    Example: ``cleanse.order("hf", rows=52002, seed=42, per_device_batch=4, accum=8, world_size=8).at(4817).rows``

    Args:
        trainer: one of ``cleanse.replaying.TRAINERS``; may be left out where ``config`` tells.
        rows: length of the dataset the trainer samples from; may be left out where ``row_ids`` or ``index_files`` tell.
        config: files of the run, or its folder: ``trainer_state.json``, ``args.json``, YAML. Arguments override them.
        row_ids: for each index of the trainer's dataset the row it holds, or the rows (packed data with a ``row_id``
            column, filtered or shuffled data). Without it an index is a row number.
        index_files: Megatron's cached index files: one of them, their folder, or their common prefix.
        **settings: any other field of ``RunSettings``.

    Raises:
        OrderUnknown: the order cannot be known from these settings; the message says why.
        TypeError: a setting that does not exist, or one that is missing.
        ValueError: a setting out of range, or a file that is not what it should be.
    """
    found = read_settings(config) if config is not None else None
    values = {**(found.values if found else {}), **settings}
    trainer = trainer or cast("str | None", values.get("trainer"))
    if trainer is None:
        raise TypeError("say which trainer made the run: trainer='hf'")
    values.pop("trainer", None)
    index = MegatronIndex.open(index_files) if index_files is not None else None
    if rows is None:
        rows = len(index) if index is not None else len(row_ids) if row_ids is not None else values.get("rows")
    values.pop("rows", None)
    if rows is None:
        raise TypeError("say how many rows the dataset has: rows=52002")
    made = make_settings(trainer, rows, values)
    if row_ids is not None and len(row_ids) != rows:
        raise ValueError(f"row_ids has {len(row_ids)} entries for {rows} rows of the trainer's dataset")
    if made.packing and row_ids is None and index is None:
        raise OrderUnknown(
            "The data was packed before it was sampled, so the trainer's indices count packs, not rows.",
            "Keep a row_id column when packing and pass it as row_ids, or give a ledger.",
        )
    if made.trainer == "megatron" and index is None:
        raise OrderUnknown(
            "Megatron samples pieces of documents.", "Give the cached index files it wrote: index_files=FOLDER."
        )
    if found and found.obstacles and row_ids is None:
        raise OrderUnknown(" ".join(found.obstacles), "Give row_ids, or a ledger.")
    result = Order(made, recipe(made), index.documents if index is not None else row_ids)
    if found and found.progress is not None and made.trainer in {"hf", "trl", "llama-factory", "ms-swift"}:
        result.check_epoch(*found.progress)
    return result
