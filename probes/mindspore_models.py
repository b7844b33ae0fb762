"""Loading a model and its tokenizer for the MindSpore probe: no torch, no transformers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from . import smollm2
from .mindspore_layout import FamilyConfig
from .mindspore_weights import load_checkpoint, load_weights
from .model_files import EMBEDDED, ModelError, embedded_folder, read_tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """Weights and what is needed to feed them.

    Attributes:
        name: As asked for.
        config: The decoder's shape.
        weights: Float32, by Hugging Face names.
        tokenizer: None where the folder has no `tokenizer.json`.
        first_id: The token that stands before every text, or None.
        folder: Where the files are, for the unigram table.
    """

    name: str
    config: FamilyConfig
    weights: dict[str, NDArray[np.float32]]
    tokenizer: Tokenizer | None
    first_id: int | None
    folder: Path | None


def load_model(
    spec: str = EMBEDDED, *, adapter: str | None = None, name_map: Iterable[tuple[str, str]] = ()
) -> LoadedModel:
    """Loads "embedded", "smollm2", a model folder, a MindSpore `.ckpt` beside its `config.json`, or a hub id.

    Args:
        spec: What to load.
        adapter: Refused: low-rank adapters have no MindSpore loader here.
        name_map: For checkpoints, pairs of pattern and replacement from the run's names to Hugging Face names; the
            names of MindFormers are known.

    Raises:
        ModelError: Where it cannot be loaded, with the reason.
    """
    if adapter is not None:
        raise ModelError(f"adapter {adapter!r}: the MindSpore backend reads none; merge it into the model first")
    try:
        if spec == EMBEDDED:
            return _from_folder(spec, embedded_folder())
        if spec == smollm2.NAME:
            return _from_folder(spec, smollm2.model_folder())
        path = Path(spec)
        if path.suffix == ".ckpt":
            config = FamilyConfig.from_folder(path.parent)
            return _assembled(spec, config, load_checkpoint(path, config, name_map), path.parent)
        return _from_folder(spec, path if path.is_dir() else _snapshot(spec))
    except (OSError, ValueError, ImportError, smollm2.FetchError) as error:
        raise ModelError(f"model {spec!r} cannot be loaded: {error}") from error


def _from_folder(spec: str, folder: Path) -> LoadedModel:
    config = FamilyConfig.from_folder(folder)
    return _assembled(spec, config, load_weights(folder, config), folder)


def _assembled(spec: str, config: FamilyConfig, weights: dict[str, NDArray[np.float32]], folder: Path) -> LoadedModel:
    tokenizer, first_id = None, config.bos_id
    if (folder / "tokenizer.json").exists():
        tokenizer = read_tokenizer(folder / "tokenizer.json")
        if spec not in (EMBEDDED, smollm2.NAME):
            first_id = _first_id(folder, tokenizer, config)
    return LoadedModel(spec, replace(config, bos_id=first_id), weights, tokenizer, first_id, folder)


def _first_id(folder: Path, tokenizer: Tokenizer, config: FamilyConfig) -> int | None:
    """BOS, else EOS, by the names in `tokenizer_config.json`; by `config.json` where there is no such file."""
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return config.bos_id
    named: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for key in ("bos_token", "eos_token"):
        token = named.get(key)
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str):
            return tokenizer.token_to_id(content)
    return None


def _snapshot(spec: str) -> Path:
    """A hub id's files in the hub's own cache. Raises OSError or ValueError where they cannot be had."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - comes with datasets
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError  # noqa: PLC0415

    try:
        return Path(snapshot_download(spec, allow_patterns=["*.json", "*.safetensors"]))
    except HFValidationError as error:
        raise ValueError(f"neither a folder nor a hub id: {error}") from error
    except HfHubHTTPError as error:
        raise OSError(str(error)) from error
