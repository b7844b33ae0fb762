"""Settings from the files a run leaves behind: ``trainer_state.json``, ``args.json``, YAML configurations.

``training_args.bin`` is a pickle, which can run code of whoever wrote it: it is never opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import yaml

MAX_BYTES = 64 << 20  # log histories of long runs reach some megabytes; anything beyond this is not a settings file

# name in the file -> our setting, for values that mean the same
_SAME = {
    "per_device_train_batch_size": "per_device_batch",
    "gradient_accumulation_steps": "accum",
    "seed": "seed",
    "data_seed": "data_seed",
    "dataloader_drop_last": "drop_last",
    "ignore_data_skip": "ignore_data_skip",
    "packing": "packing",
    "neat_packing": "packing",
    "streaming": "streaming",
    "global_world_size": "world_size",
    "world_size": "world_size",
    "train_dataloader_shuffle": "shuffle",
    "dataset_shuffle": "dataset_shuffled",
    "shuffle_dataset": "dataset_shuffled",
    "swift_version": "version",
    "train_sampling_strategy": "sampling",
    "micro_batch_size": "per_device_batch",
}
_TYPES: dict[str, tuple[type, ...]] = {
    "per_device_batch": (int,),
    "accum": (int,),
    "seed": (int,),
    "data_seed": (int,),
    "world_size": (int,),
    "version": (str,),
    "sampling": (str,),
}
_ACCELERATE = {
    "split_batches": "split_batches",
    "even_batches": "even_batches",
    "use_seedable_sampler": "seedable_sampler",
}
_TRAINING = {
    "max_grad_norm": (int, float),
    "warmup_steps": (int, float),
    "max_length": (int,),
    "cutoff_len": (int,),
    "fp16": (bool,),
    "bf16": (bool,),
}
_LOGGED = ("loss", "grad_norm", "learning_rate", "epoch", "step")


@dataclass
class RunFiles:
    """What a run's files say about its order."""

    values: dict[str, Any] = field(default_factory=dict)  # names of RunSettings
    obstacles: list[str] = field(default_factory=list)  # why rows of the input cannot be known without row_ids
    progress: tuple[int, float] | None = None  # (global_step, epoch) from trainer_state.json
    log: list[dict[str, float]] = field(default_factory=list)  # log_history: step, loss, grad_norm, learning_rate
    read: list[Path] = field(default_factory=list)
    training: dict[str, Any] = field(default_factory=dict)  # max_grad_norm, warmup_steps, max_length, fp16, bf16


def read_settings(paths: str | Path | Sequence[str | Path]) -> RunFiles:
    """Read the settings a run left.

    Args:
        paths: files, or a folder with ``trainer_state.json``, ``args.json`` or YAML (a checkpoint, an output folder).

    Raises:
        ValueError: a file that cannot be read, is too large, or is no settings file; ``training_args.bin``.
    """
    found = RunFiles()
    for path in [paths] if isinstance(paths, str | Path) else paths:
        for file in _files(Path(path)):
            _read_one(file, found)
            found.read.append(file)
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [path / name for name in ("args.json", "trainer_state.json") if (path / name).is_file()]
    if path.name.startswith("checkpoint-") and not (path / "args.json").is_file():
        files[:0] = [p for p in [path.parent / "args.json"] if p.is_file()]
    files += sorted(p for pattern in ("*.yaml", "*.yml") for p in path.glob(pattern))
    if not files:
        raise ValueError(
            f"{path} holds no args.json, trainer_state.json or YAML: name the file that has the run's settings"
        )
    return files


def _read_one(path: Path, found: RunFiles) -> None:
    if path.suffix == ".bin":
        raise ValueError(f"{path} is a pickle, which can run code: give args.json or YAML, or the settings themselves")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path} has more than {MAX_BYTES >> 20} MiB: no settings file")
        text = path.read_text(encoding="utf-8")
        content = yaml.safe_load(text) if path.suffix in {".yaml", ".yml"} else json.loads(text)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, json.JSONDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'YAML'}: {error}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} holds no settings: an object with names and values was expected")  # noqa: TRY004  # a file's fault
    if "global_step" in content and "log_history" in content:
        _trainer_state(content, found)
    else:
        _arguments(content, found)


def _trainer_state(state: Mapping[str, Any], found: RunFiles) -> None:
    found.values.setdefault("trainer", "hf")
    batch = state.get("train_batch_size")
    if isinstance(batch, int) and batch > 0:
        found.values["per_device_batch"] = batch  # what auto_find_batch_size came to, too
    step, epoch = state.get("global_step"), state.get("epoch")
    if isinstance(step, int) and isinstance(epoch, int | float) and step > 0:
        found.progress = (step, float(epoch))
    for entry in state.get("log_history") or []:
        if isinstance(entry, Mapping) and isinstance(entry.get("step"), int):
            found.log.append({k: float(entry[k]) for k in _LOGGED if _is_number(entry.get(k))})


def _arguments(values: Mapping[str, Any], found: RunFiles) -> None:
    for name, ours in _SAME.items():
        value = values.get(name)
        if value is None:
            continue
        wanted = _TYPES.get(ours, (bool,))
        if not isinstance(value, wanted) or (wanted == (int,) and isinstance(value, bool)):
            continue  # a placeholder such as "auto"
        found.values[ours] = found.values.get(ours, False) or value if ours == "packing" else value
    found.training.update(_training(values))
    accelerator = values.get("accelerator_config")
    if isinstance(accelerator, Mapping):
        found.values.update(
            {ours: accelerator[name] for name, ours in _ACCELERATE.items() if isinstance(accelerator.get(name), bool)}
        )
    if values.get("group_by_length") is True:
        found.values["sampling"] = "group_by_length"
    trainer = _trainer(values)
    if trainer is not None:
        found.values["trainer"] = trainer
    if trainer == "llama-factory" and values.get("disable_shuffling") is True:
        found.values["shuffle"] = False
    if trainer == "ms-swift":
        found.values.setdefault("dataset_shuffled", True)  # its default
    _mapping_obstacles(trainer, values, found)


def _training(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that do not decide the order, but what a step does."""
    return {
        "max_length" if name == "cutoff_len" else name: value
        for name, types in _TRAINING.items()
        if isinstance(value := values.get(name), types) and isinstance(value, bool) == (types == (bool,))
    }


def _trainer(values: Mapping[str, Any]) -> str | None:
    if "swift_version" in values or "train_dataloader_shuffle" in values:
        return "ms-swift"
    if "finetuning_type" in values and "stage" in values:
        return "llama-factory"
    if "shuffle_dataset" in values or "packing_strategy" in values:
        return "trl"
    return None


def _mapping_obstacles(trainer: str | None, values: Mapping[str, Any], found: RunFiles) -> None:
    """Settings that put other rows, or rows in another order, between the input and the trainer's dataset."""
    for name, what in (
        ("val_size", "split off a validation set by a random draw"),
        ("split_dataset_ratio", "split off a validation set by a random draw"),
        ("interleave_probs", "interleaved several data sets"),
        ("interleave_prob", "interleaved several data sets"),
    ):
        value = values.get(name)
        if value > 0 if _is_number(value) else isinstance(value, list | str) and bool(value):
            found.obstacles.append(f"The run {what} ({name}), so indices no longer are row numbers of the input.")
    data_sets = values.get("dataset")
    names = data_sets if isinstance(data_sets, list) else str(data_sets or "").split(",")
    if trainer == "ms-swift" and any("#" in str(name) for name in names):
        found.obstacles.append(
            "The run sampled rows of a data set (# in its name), which draws from the shuffle's stream."
        )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
