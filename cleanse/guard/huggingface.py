"""The guard inside the Hugging Face Trainer and the trainers built on it (TRL, ms-swift, LLaMA-Factory).

Row ids travel inside the batch: the loader runs ahead of the step (accelerate by a batch, the Trainer by a whole
accumulation window), so a collator that took notes would be ahead too. The ids are taken out again before the model
sees the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from cleanse.guard.ranks import torch_any_rank
from cleanse.replaying.skipping import ROW_ID, MapDataset, SkipCollator, SkipList
from cleanse.replaying.steps import once

if TYPE_CHECKING:
    from cleanse.guard.core import Guard, Judgement

FIELD = "cleanse_row"
"""Under which name an example carries its row id, or ids, to the collator."""

KEY = "cleanse_rows"
"""Under which name the ids lie in the batch."""


class Numbered:
    """The dataset with each example's row in it: its ``row_id`` column where it has one, else its number."""

    def __init__(self, dataset: MapDataset) -> None:
        self.dataset: Any = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        """One example; a column, where it is asked for by name."""
        return self.dataset[index] if isinstance(index, str) else self._with_row(int(index), self.dataset[index])

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """A batch of examples at once: torch asks so, and Arrow tables are read faster so."""
        many = getattr(self.dataset, "__getitems__", None)
        examples = many(list(indices)) if many is not None else [self.dataset[i] for i in indices]
        return [self._with_row(i, example) for i, example in zip(indices, examples, strict=True)]

    def __getattr__(self, name: str) -> Any:
        """Everything else as the dataset has it (``column_names``, ``features``, ...)."""
        if name == "dataset":  # not yet there while a worker process unpickles this
            raise AttributeError(name)
        return getattr(self.dataset, name)

    @staticmethod
    def _with_row(index: int, example: Mapping[str, Any]) -> dict[str, Any]:
        rows = example.get(ROW_ID, index)
        if isinstance(rows, list | tuple):  # a pack names a row per token
            rows = list(once(rows))
        return {**example, FIELD: rows}


class CarryRows:
    """Wraps a collator: takes the examples' row ids off, and puts them into the batch."""

    def __init__(self, collate: Callable[[list[dict[str, Any]]], Any]) -> None:
        self._collate = collate

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> Any:
        """A batch with ``KEY``: a tensor of numbers, or a list where ids are text. Examples without ids: none."""
        ids: list[Any] = []
        for feature in features:
            rows = feature.get(FIELD, [])
            ids.extend(rows if isinstance(rows, list) else [rows])
        batch = self._collate([{k: v for k, v in f.items() if k != FIELD} for f in features])
        if ids:
            batch[KEY] = ids if any(isinstance(i, str) for i in ids) else torch.tensor([int(i) for i in ids])
        return batch


def attach(guard: Guard, trainer: Trainer, skip: SkipList | None = None) -> Trainer:
    """Let a guard watch a Trainer. Call it after the Trainer is made and before ``train()``.

    The order of the run does not change: the dataset is wrapped, keeps its length, and is sampled as before. Under
    DeepSpeed the update happens inside the backward pass, so a spike can stop a run but not skip its update.

    Args:
        guard: the guard.
        trainer: a ``transformers.Trainer`` or a subclass.
        skip: rows to mask on the way (see ``cleanse.SkipCollator``).

    Raises:
        TypeError: there is no dataset with row numbers to watch.
    """
    dataset: Any = trainer.train_dataset
    if dataset is None or isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(dataset, "__len__"):
        raise TypeError(
            "a guard needs a train_dataset with row numbers: for a streamed one call guard.rows and guard.step in a "
            "training_step of your own"
        )
    numbered: Any = Numbered(dataset)
    trainer.train_dataset = numbered
    trainer._set_signature_columns_if_needed()  # noqa: SLF001  # the list of columns that pruning keeps, since 4.0
    columns: Any = [*(trainer._signature_columns or []), FIELD]  # noqa: SLF001
    trainer._signature_columns = columns  # noqa: SLF001
    _collate_training(trainer, skip)
    guard.settings.setdefault("trainer", "hf")
    for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "seed", "data_seed"):
        guard.settings.setdefault(name, getattr(trainer.args, name, None))
    guard.settings.setdefault("rows", len(dataset))
    guard.rank, guard.world_size = trainer.args.process_index, trainer.args.world_size
    guard.any_rank = torch_any_rank
    trainer.add_callback(_Watch(guard, trainer))
    return trainer


def _collate_training(trainer: Trainer, skip: SkipList | None) -> None:
    """Put our collator into the training loader only: evaluation shares the Trainer's, and its rows have no ids."""
    make = trainer.get_train_dataloader

    def get_train_dataloader(*args: Any, **kwargs: Any) -> Any:
        plain = trainer.data_collator
        carry: Any = CarryRows(plain)
        trainer.data_collator = carry if skip is None else SkipCollator(carry, skip, key=FIELD, keep_ids=True)
        try:
            return make(*args, **kwargs)
        finally:
            trainer.data_collator = plain

    _replace(trainer, "get_train_dataloader", get_train_dataloader)


def _replace(owner: Any, name: str, ours: Callable[..., Any]) -> None:
    """Replace a method of one object; other Trainers of the process go on as they are."""
    setattr(owner, name, ours)


@torch.no_grad()
def parameter_norm(parameters: Iterable[torch.Tensor]) -> float:
    """L2 norm over all parameters together (of this rank's part, where they are sharded)."""
    norms = [torch.linalg.vector_norm(p.detach(), dtype=torch.float32) for p in parameters if p.numel()]
    return float(torch.linalg.vector_norm(torch.stack([n.to(norms[0].device) for n in norms]))) if norms else 0.0


class _Watch(TrainerCallback):
    """Takes the rows off the batch, the loss and the norm from the step, and carries out what the guard answers."""

    def __init__(self, guard: Guard, trainer: Trainer) -> None:
        self._guard = guard
        self._trainer = trainer
        self._losses: list[torch.Tensor] = []
        self._norm: float | None = None
        self._said: Judgement | None = None
        self._scalars: dict[str, float | None] = {}
        self._train = trainer.training_step
        self._clip = trainer.accelerator.clip_grad_norm_
        _replace(trainer, "training_step", self._training_step)
        _replace(trainer.accelerator, "clip_grad_norm_", self._clip_grad_norm)

    def _training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        rows = inputs.pop(KEY, None)
        if rows is not None:
            self._guard.next_step = self._trainer.state.global_step + 1
            self._guard.rows(rows)
        loss = self._train(model, inputs, *args, **kwargs)
        self._losses.append(loss.detach())
        return loss

    def _clip_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        norm = self._clip(*args, **kwargs)
        self._norm = None if norm is None else float(norm)
        return norm

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Judge the step while its gradients can still be thrown away."""
        del args
        model, optimizer = kwargs.get("model"), kwargs.get("optimizer")
        loss = float(torch.stack([x.float() for x in self._losses]).sum()) if self._losses else None
        if self._norm is None and model is not None:
            # nothing was clipped: clipping at infinity gives the norm and changes nothing
            self._norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), math.inf))
        scaler = getattr(self._trainer.accelerator, "scaler", None)
        scale = float(scaler.get_scale()) if scaler is not None else None
        size = parameter_norm(model.parameters()) if model is not None else None
        self._scalars = {"cleanse/param_norm": size, "cleanse/loss_scale": scale}
        self._said = self._guard.step(
            loss=loss,
            grad_norm=self._norm,
            param_norm=size,
            loss_scale=scale,
            learning_rate=float(optimizer.param_groups[0]["lr"]) if optimizer is not None else None,
            step=state.global_step + 1,
        )
        self._losses, self._norm = [], None
        if self._said.answer.value == "go_on" or model is None:
            return
        self._throw_away(model)
        if self._said.answer.value == "stop":
            control.should_training_stop = True

    def _throw_away(self, model: Any) -> None:
        """No gradient, no update: an optimizer passes over parameters without one.

        A loss scaler that has not looked at the gradients yet insists on some; then they are zero.
        """
        scaler = getattr(self._trainer.accelerator, "scaler", None)
        unseen = scaler is not None and not self._trainer.args.max_grad_norm
        for parameter in model.parameters():
            if unseen and parameter.grad is not None:
                parameter.grad.zero_()
            else:
                parameter.grad = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Tell the Trainer's reporters (TensorBoard, Weights & Biases): of a spike at once, else when a log is due."""
        del args, state, kwargs
        due = control.should_log
        scalars = {name: value for name, value in self._scalars.items() if value is not None} if due else {}
        if self._said is not None and self._said.spike:
            scalars |= {"cleanse/spike": 1.0, "cleanse/skipped": float(self._said.answer.value != "go_on")}
        if scalars:
            self._trainer.log(scalars)
            control.should_log = due  # a log of ours would count as the one that this step is due
        self._said = None
