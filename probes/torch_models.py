"""Loading a causal language model and its tokenizer for the probe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from . import smollm2
from .decoder import load_decoder
from .decoder_config import DecoderConfig
from .model_files import EMBEDDED, ModelError, embedded_folder, read_tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode on the CPU, and what is needed to feed it.

    Attributes:
        name: As asked for.
        model: The module; what requires a gradient is what it would train.
        tokenizer: None where the folder has no `tokenizer.json`.
        first_id: The token that stands before every text, or None.
        pad_id: Any valid id to pad with.
        max_positions: The longest sequence the model knows.
        folder: Where the files are, for the unigram table; None for a hub id.
    """

    name: str
    model: nn.Module
    tokenizer: Tokenizer | None
    first_id: int | None
    pad_id: int
    max_positions: int
    folder: Path | None


def load_model(
    spec: str = EMBEDDED,
    *,
    adapter: str | None = None,
    dtype: torch.dtype = torch.float32,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Loads "embedded", "smollm2", a model folder or a hub id.

    Args:
        spec: What to load. The first two need neither transformers nor a network (`smollm2` once fetched).
        adapter: A PEFT adapter folder or id: the gradient norm is then over its parameters alone.
        dtype: Of the weights.
        trust_remote_code: Passed to transformers; code of the model's author runs only if True.

    Raises:
        ModelError: Where it cannot be loaded, with the reason. Weights other than safetensors are refused.
    """
    try:
        if adapter is None and spec in (EMBEDDED, smollm2.NAME):
            folder = embedded_folder() if spec == EMBEDDED else smollm2.model_folder()
            return _load_small(spec, folder, dtype)
        return _load_transformers(spec, adapter, dtype, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, ImportError, smollm2.FetchError) as error:
        raise ModelError(f"model {spec!r} cannot be loaded: {error}") from error


def _load_small(spec: str, folder: Path, dtype: torch.dtype) -> LoadedModel:
    config = DecoderConfig.from_folder(folder)
    return LoadedModel(
        name=spec,
        model=load_decoder(folder, dtype),
        tokenizer=read_tokenizer(folder / "tokenizer.json"),
        first_id=config.bos_id,
        pad_id=config.pad_id or 0,
        max_positions=config.max_positions,
        folder=folder,
    )


def _load_transformers(spec: str, adapter: str | None, dtype: torch.dtype, *, trust_remote_code: bool) -> LoadedModel:
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - an extra, slow to import
    except ImportError as error:
        raise ImportError("it needs transformers: pip install 'corpus-cleanse[torch]'") from error
    source = {EMBEDDED: embedded_folder, smollm2.NAME: smollm2.model_folder}.get(spec, lambda: spec)()
    folder = Path(source)
    model: Any = AutoModelForCausalLM.from_pretrained(
        source, dtype=dtype, use_safetensors=True, trust_remote_code=trust_remote_code
    )
    if adapter is not None:
        try:
            from peft import PeftModel  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ImportError("an adapter needs peft: pip install 'corpus-cleanse[torch]'") from error
        model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    tokenizer, first_id = _tokenizer_of(source, folder, AutoTokenizer, trust_remote_code=trust_remote_code)
    config = model.config
    pad = config.pad_token_id if isinstance(getattr(config, "pad_token_id", None), int) else 0
    return LoadedModel(
        name=spec,
        model=model.eval(),
        tokenizer=tokenizer,
        first_id=first_id,
        pad_id=max(0, pad),
        max_positions=int(getattr(config, "max_position_embeddings", 0) or 2048),
        folder=folder if folder.is_dir() else None,
    )


def _tokenizer_of(
    source: str | Path, folder: Path, auto: Any, *, trust_remote_code: bool
) -> tuple[Tokenizer | None, int | None]:
    """The model's own tokenizer and the token that goes first; a folder without one is no error."""
    if folder.is_dir() and not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json")):
        return None, None
    wrapped = auto.from_pretrained(source, trust_remote_code=trust_remote_code)
    first = wrapped.bos_token_id if wrapped.bos_token_id is not None else wrapped.eos_token_id
    inner = getattr(wrapped, "backend_tokenizer", None)
    if not isinstance(inner, Tokenizer):
        return None, first
    inner.no_truncation()
    inner.no_padding()
    inner.encode_special_tokens = True
    return inner, first
