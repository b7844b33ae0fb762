"""What a replay is asked with: precision, model, tokenizer, normalisation, as said or as the run's files have it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from cleanse.errors import CleanseError, UsageError
from cleanse.probing.backends import backend as load_backend
from cleanse.replaying.locating import Located
from cleanse.replaying.measuring import PRECISIONS, Precision
from cleanse.replaying.runfiles import RunFiles
from cleanse.tokenizers_io import LoadedTokenizer, TokenizerError, load_tokenizer
from cleanse.trainer_view import TRAINERS as VIEWS
from cleanse.trainer_view import TrainerSettings

WHOLE_WINDOW = ("hf", "trl", "ms-swift", "llama-factory")
"""Trainers that divide by the token count of the whole accumulation window; the others take a mean per batch."""

NORMALISATIONS = ("auto", "window", "micro-batch")


def precision_of(dtype: str | None, loss_scale: float | str | None, files: RunFiles, located: Located) -> Precision:
    """The run's precision: as said, else as its files or the capsule have it."""
    name = dtype or located.settings.get("dtype")
    if name is None:
        name = "fp16" if files.training.get("fp16") else "bf16" if files.training.get("bf16") else "fp32"
    if name not in PRECISIONS:
        raise UsageError(f"dtype is {name!r}: expected one of {', '.join(PRECISIONS)}")
    scale: float | None = None
    if isinstance(loss_scale, str) and loss_scale != "dynamic":
        try:
            loss_scale = float(loss_scale)
        except ValueError:
            raise UsageError(f"the loss scale is {loss_scale!r}: expected a number, or dynamic") from None
    if isinstance(loss_scale, int | float):
        scale = float(loss_scale)
    else:
        logged = [e for e in located.history if e.get("step") == located.step]
        told = logged[-1].get("loss_scale") if logged else located.settings.get("loss_scale")
        scale = float(told) if told is not None else None
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise UsageError(f"the loss scale is {scale}: expected a number above 0")
    return Precision(name, scale)


def opened_probe(name: str, model: str, adapter: str | None, device: str) -> tuple[Any, Any]:
    """The checkpoint, opened by a probe backend, and the backend. Raises CleanseError where that fails."""
    module = load_backend(name)
    try:
        return module.open_probe(model, adapter=adapter, device=device, dtype="float32"), module
    except (ValueError, OSError, RuntimeError) as error:
        raise CleanseError(f"the checkpoint {model!r} cannot be replayed: {error}") from error


def view_of(trainer: str | None, max_length: int | None, truncation: str | None, loss: str | None) -> TrainerSettings:
    """How the trainer cut records, and which tokens carried loss. Raises UsageError."""
    given: dict[str, Any] = {"max_length": max_length, "truncation": truncation, "loss": loss}
    try:
        return TrainerSettings.of(trainer if trainer in VIEWS else "generic", **given)
    except ValueError as error:
        raise UsageError(str(error)) from error


def tokenizer_of(tokenizer: str | None, chat_template: str | None, model: str, probe: Any) -> LoadedTokenizer | None:
    """The tokenizer asked for, else that of the model; None where the model has none."""
    folder = probe.loaded.folder
    try:
        return load_tokenizer(tokenizer or str(folder or model), chat_template)
    except TokenizerError as error:
        if tokenizer is not None:
            raise UsageError(f"tokenizer {tokenizer}: {error}") from error
        return None


def first_id_of(probe: Any, model: str) -> int | None:
    """The token that the model expects in front of a text."""
    first: int | None = probe.loaded.first_id
    config = Path(model) / "config.json"
    if first is None and config.is_file():
        told = json.loads(config.read_text("utf-8")).get("bos_token_id")
        first = told if isinstance(told, int) else None
    return first


def mean_per_batch(normalise: str, trainer: str | None) -> bool:
    """Whether the run took a mean per forward pass. Raises UsageError for an unknown word."""
    if normalise not in NORMALISATIONS:
        raise UsageError(f"normalise is {normalise!r}: expected one of {', '.join(NORMALISATIONS)}")
    if normalise == "auto":
        return trainer is not None and trainer not in WHOLE_WINDOW
    return normalise == "micro-batch"
