"""One function per trainer: from its settings to the epoch's shuffle, its layout over ranks, and what to warn of.

``hf`` is the Hugging Face Trainer with accelerate's loaders (and ``trl``, ``llama-factory`` on top of it);
``accelerate`` a plain loop over an accelerate loader; ``torch`` a loop over ``DistributedSampler``; ``sequential`` the
same loaders as ``hf`` in plain order. Verified against the trainers themselves unless a note says "from its source".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cleanse.replaying.layouts import Blocks, Layout, Rounds, Strided
from cleanse.replaying.settings import RunSettings
from cleanse.replaying.shuffles import (
    Indices,
    MindSporeShuffle,
    datasets_shuffle,
    swift_dataset_shuffle,
    torch_randperm,
)
from cleanse.replaying.steps import OrderUnknown

EpochOrder = Callable[[int], Indices]

MINDSPORE_UNSET_SEED = 5489  # std::mt19937's own, which MindSpore reads as "no seed was set"


@dataclass(frozen=True)
class Recipe:
    """How one trainer walks through its dataset."""

    layout: Layout
    epoch_order: EpochOrder  # epoch (from 0) -> dataset indices, one per position of the layout
    tail: str  # step | drop | carry
    per_rank: bool = True  # False: the rows of a step are known, their division over ranks is not
    before: Indices | None = None  # a shuffle of the dataset before training: index -> row
    notes: tuple[str, ...] = ()


def recipe(s: RunSettings) -> Recipe:
    """The recipe for these settings.

    Raises:
        OrderUnknown: the settings do not determine the order.
    """
    if s.streaming:
        raise OrderUnknown(
            "A streamed dataset has no fixed order: its shuffle buffer and the number of shards and workers decide."
        )
    return _RECIPES[s.trainer](s)


def _plain(n: int) -> EpochOrder:
    order = np.arange(n, dtype=np.int64)
    return lambda _epoch: order


def _rounds(s: RunSettings) -> Rounds:
    return Rounds(s.rows, s.per_device_batch, s.world_size, s.drop_last, s.even_batches, s.split_batches)


def _seed(s: RunSettings, default: int) -> int:
    return default if s.seed is None else s.seed


def _hf(s: RunSettings, *, seedable: bool = True) -> Recipe:
    layout = _rounds(s)
    if not s.shuffle or s.sampling == "sequential":
        return Recipe(layout, _plain(s.rows), "step")
    if s.sampling == "group_by_length":
        raise OrderUnknown(
            "group_by_length draws from torch's global generator, whose state at that point is not known."
        )
    if s.sampling == "batch_rebalance":
        return _batch_rebalance(s)
    if s.sampling != "random":
        raise OrderUnknown(f"Sampling {s.sampling!r} is none of random, sequential, group_by_length, batch_rebalance.")
    if not (seedable if s.seedable_sampler is None else s.seedable_sampler):
        raise OrderUnknown(
            "Without accelerate's seedable sampler (use_seedable_sampler) the order comes from torch's global "
            "generator, whose state at that point is not known."
        )
    seed = _seed(s, 42) if s.data_seed is None else s.data_seed
    notes = []
    if s.data_seed is None:
        notes.append(
            "Without data_seed the order follows torch's seed; a torch.manual_seed call after the Trainer changes it."
        )
    if s.resumed_at is not None:
        notes.append(
            "Versions of accelerate before June 2026 could resume in the middle of an epoch with another order."
        )
    return Recipe(layout, lambda epoch: torch_randperm(s.rows, seed + epoch), "step", notes=tuple(notes))


def _batch_rebalance(s: RunSettings) -> Recipe:
    """``BatchRebalanceSampler``: always seeded with 42 + epoch; lengths decide only which rank gets which row."""
    every_row = Rounds(s.rows, s.per_device_batch * s.accum * s.world_size, 1, s.drop_last)
    note = "batch_rebalance deals the rows of a step out by their token counts: which rank had which is not worked out."
    return Recipe(every_row, lambda epoch: torch_randperm(s.rows, 42 + epoch), "step", per_rank=False, notes=(note,))


def _accelerate(s: RunSettings) -> Recipe:
    made = _hf(s, seedable=False)
    return Recipe(made.layout, made.epoch_order, _loop_tail(s, made.layout), notes=made.notes)


def _trl(s: RunSettings) -> Recipe:
    made = _hf(s)
    before = datasets_shuffle(s.rows, _seed(s, 42)) if s.dataset_shuffled else None
    notes = ("TRL drops rows without a supervised token before it samples: rows must count those that were left.",)
    return Recipe(made.layout, made.epoch_order, made.tail, before=before, notes=made.notes + notes)


def _llama_factory(s: RunSettings) -> Recipe:
    made = _hf(s)
    notes = (
        "LLaMA-Factory drops invalid rows (and splits off val_size) before it samples: rows must count those left.",
    )
    return Recipe(made.layout, made.epoch_order, made.tail, notes=made.notes + notes)


def _swift(s: RunSettings) -> Recipe:
    version = _version(s.version)
    if version is None and s.world_size > 1:
        raise OrderUnknown(
            "ms-swift divided the rows over ranks in four ways: the Trainer's until 3.2, blocks from 3.3, every W-th "
            "row from 3.12, padded after 4.6.",
            "Give the version of ms-swift (version=..., --trainer-version), or a ledger.",
        )
    if version is not None and version < (3, 3):
        return _hf(s)
    if s.sampling != "random":
        raise OrderUnknown(f"ms-swift with {s.sampling} orders by token counts.")
    seed = 42 if s.data_seed is None else s.data_seed
    whole = s.rows // s.world_size * s.world_size
    layout: Layout
    if version is not None and version > (4, 6):
        whole = s.rows
        layout = Strided(s.rows, s.per_device_batch, s.world_size, pad=not s.drop_last, drop_last=s.drop_last)
    elif version is None or version >= (3, 12):
        layout = Strided(whole, s.per_device_batch, s.world_size, pad=False, drop_last=s.drop_last)
    else:
        layout = Blocks(whole, s.per_device_batch, s.world_size, drop_last=s.drop_last)
    before = swift_dataset_shuffle(s.rows, seed) if s.dataset_shuffled else None
    order = (lambda epoch: torch_randperm(whole, seed + epoch)) if s.shuffle else _plain(whole)
    note = "ms-swift's lazy dataset silently puts another row in place of one it cannot encode or that is too long."
    return Recipe(layout, order, "step", before=before, notes=(note,))


def _version(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    try:
        major, minor = text.split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        raise ValueError(f"a version looks like 3.12.0, not {text!r}") from None


def _torch(s: RunSettings) -> Recipe:
    seed = _seed(s, 0)
    layout = Strided(s.rows, s.per_device_batch, s.world_size, pad=not s.sampler_drop_last, drop_last=s.drop_last)
    epochs: EpochOrder = lambda epoch: torch_randperm(s.rows, seed + (epoch if s.set_epoch else 0))  # noqa: E731
    return Recipe(layout, epochs if s.shuffle else _plain(s.rows), _loop_tail(s, layout))


def _loop_tail(s: RunSettings, layout: Layout) -> str:
    if s.accum_tail is not None:
        return s.accum_tail
    if layout.micro_batches % s.accum == 0:
        return "step"
    raise OrderUnknown(
        f"An epoch has {layout.micro_batches} batches and {s.accum} are accumulated: a loop may step on the rest, drop "
        "it, or carry it into the next epoch.",
        "Say which: accum_tail = step, drop or carry.",
    )


def _deepspeed(s: RunSettings) -> Recipe:
    layout = Strided(s.rows, s.per_device_batch, s.world_size, drop_last=s.drop_last)
    order = torch_randperm(s.rows, 0)
    note = "From DeepSpeed's source: its own loader shuffles with seed 0 and repeats the same order in every epoch."
    return Recipe(layout, lambda _epoch: order, s.accum_tail or "carry", notes=(note,))


def _mindspore(s: RunSettings) -> Recipe:
    layout = Strided(s.rows, s.per_device_batch, s.world_size, drop_last=s.drop_last)
    if not s.shuffle:
        return Recipe(layout, _plain(s.rows), s.accum_tail or "carry")
    sharded = s.world_size > 1 if s.sharded is None else s.sharded
    seed = _seed(s, MINDSPORE_UNSET_SEED)
    if seed == MINDSPORE_UNSET_SEED and not sharded:
        raise OrderUnknown(
            f"Until a seed is set (or with {MINDSPORE_UNSET_SEED}, which counts as none) MindSpore shuffles a dataset "
            "without shards with a random one."
        )
    shuffle = MindSporeShuffle(s.rows, seed + (1 if sharded else 0))
    return Recipe(layout, shuffle.epoch, s.accum_tail or "carry")


def _megatron(s: RunSettings) -> Recipe:
    """Samples in the order of the shuffle index; ``order`` maps them to documents where index files are given."""
    layout = Rounds(s.rows, s.per_device_batch, s.world_size, drop_last=True)
    return Recipe(layout, _plain(s.rows), "carry")


def _sequential(s: RunSettings) -> Recipe:
    return Recipe(_rounds(s), _plain(s.rows), s.accum_tail or "step")


_RECIPES: dict[str, Callable[[RunSettings], Recipe]] = {
    "hf": _hf,
    "accelerate": _accelerate,
    "trl": _trl,
    "llama-factory": _llama_factory,
    "ms-swift": _swift,
    "torch": _torch,
    "deepspeed": _deepspeed,
    "mindspore": _mindspore,
    "megatron": _megatron,
    "sequential": _sequential,
}
