"""What the order of a run depends on, under one set of names for all trainers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

TRAINERS = (
    "hf",
    "accelerate",
    "trl",
    "llama-factory",
    "ms-swift",
    "torch",
    "deepspeed",
    "megatron",
    "mindspore",
    "sequential",
)
"""Trainers whose orders are known. ``docs``: what each stands for is said in ``cleanse.replaying.trainers``."""

_ALIASES = {
    "huggingface": "hf",
    "transformers": "hf",
    "llamafactory": "llama-factory",
    "llama_factory": "llama-factory",
    "swift": "ms-swift",
    "ms_swift": "ms-swift",
    "distributed-sampler": "torch",
    "ms": "mindspore",
}


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run that decide which rows make up a step.

    Defaults are those of most trainers; ``None`` means "as this trainer has it". Read them from a run's own files
    with ``cleanse.replaying.read_settings``.
    """

    trainer: str
    rows: int  # length of the dataset the trainer samples from (after its own filtering and packing)
    per_device_batch: int = 8
    accum: int = 1  # forward passes per optimizer step
    world_size: int = 1  # data-parallel ranks
    seed: int | None = None
    data_seed: int | None = None
    shuffle: bool = True
    drop_last: bool = False  # of the loader
    split_batches: bool = False  # accelerate
    even_batches: bool = True  # accelerate
    seedable_sampler: bool | None = None  # accelerate; on in the Trainer, off in accelerate itself
    sampling: str = "random"  # random | sequential | group_by_length | batch_rebalance
    sampler_drop_last: bool = False  # torch's DistributedSampler: shorten instead of pad
    set_epoch: bool = True  # whether the loop calls sampler.set_epoch(epoch)
    sharded: bool | None = None  # MindSpore: num_shards was given; by default when world_size > 1
    accum_tail: str | None = None  # step | drop | carry: what happens to a last, short accumulation window of an epoch
    dataset_shuffled: bool = False  # the trainer shuffled the whole dataset once before training (TRL, ms-swift)
    packing: bool = False
    streaming: bool = False
    version: str | None = None  # of the trainer, where its order changed between versions (ms-swift)
    resumed_at: int | None = None  # global step of the checkpoint this run was last resumed from
    ignore_data_skip: bool = False  # the resumed run did not skip the rows it had already seen

    def __post_init__(self) -> None:
        name = self.trainer.lower()
        object.__setattr__(self, "trainer", _ALIASES.get(name, name))
        if self.trainer not in TRAINERS:
            raise ValueError(f"no trainer is called {name!r}: known are {', '.join(TRAINERS)}")
        for name in ("rows", "per_device_batch", "accum", "world_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.accum_tail not in {None, "step", "drop", "carry"}:
            raise ValueError(f"accum_tail is step, drop or carry, not {self.accum_tail!r}")
        if self.resumed_at is not None and self.resumed_at < 0:
            raise ValueError(f"resumed_at is a global step, not {self.resumed_at}")


def make_settings(trainer: str, rows: int, values: dict[str, Any]) -> RunSettings:
    """Settings from loose values.

    Raises:
        TypeError: a name that is no setting; the message lists those there are.
        ValueError: a value out of range.
    """
    known = [f.name for f in fields(RunSettings)]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise TypeError(f"no such setting: {', '.join(unknown)}. There are: {', '.join(known)}")
    return RunSettings(trainer=trainer, rows=rows, **values)
