"""Weights by their Hugging Face names from safetensors files, whole or sharded, or from a MindSpore checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .mindspore_layout import FamilyConfig

INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"

_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16}

#: How MindSpore projects name the same weights: pattern, replacement. MindFormers writes `attention.wq`,
#: `feed_forward.w1` (gate), `w3` (up) and `w2` (down); others keep the Llama names and call an embedding's weight
#: `embedding_table`, a norm's `gamma`.
NAME_MAP: tuple[tuple[str, str], ...] = (
    (r"^(?:network\.|_backbone\.)+", ""),
    (r"\btok_embeddings\.(?:embedding_weight|weight)$", "embed_tokens.weight"),
    (r"\bembed_tokens\.embedding_(?:table|weight)$", "embed_tokens.weight"),
    (r"\.attention\.w([qkvo])\.", r".self_attn.\1_proj."),
    (r"\.feed_forward\.w1\.", ".mlp.gate_proj."),
    (r"\.feed_forward\.w3\.", ".mlp.up_proj."),
    (r"\.feed_forward\.w2\.", ".mlp.down_proj."),
    (r"\.attention_norm\.", ".input_layernorm."),
    (r"\.ffn_norm\.", ".post_attention_layernorm."),
    (r"^model\.norm_out\.", "model.norm."),
    (r"(layernorm|^model\.norm)\.gamma$", r"\1.weight"),
    (r"^output\.", "lm_head."),
)


def expected_shapes(config: FamilyConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight that a decoder of this configuration has."""
    width, mlp = config.width, config.mlp_width
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, width),
        "model.norm.weight": (width,),
    }
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocab_size, width)
    linear = {
        "self_attn.q_proj": (queries, width, config.attention_bias),
        "self_attn.k_proj": (keys, width, config.attention_bias),
        "self_attn.v_proj": (keys, width, config.attention_bias),
        "self_attn.o_proj": (width, queries, config.output_bias),
        "mlp.gate_proj": (mlp, width, config.mlp_bias),
        "mlp.up_proj": (mlp, width, config.mlp_bias),
        "mlp.down_proj": (width, mlp, config.mlp_bias),
    }
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        for name, (rows, columns, bias) in linear.items():
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{prefix}{name}.bias"] = (rows,)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{prefix}{name}.weight"] = (width,)
    return shapes


def load_weights(folder: Path, config: FamilyConfig) -> dict[str, NDArray[np.float32]]:
    """Every weight of the model in `folder` as float32.

    Raises FileNotFoundError where there are no safetensors files, ValueError where one is damaged or the weights are
    not those of `config`.
    """
    index = folder / INDEX
    if index.exists():
        names = _shards(index)
    elif (folder / WHOLE).exists():
        names = [WHOLE]
    else:
        raise FileNotFoundError(f"{folder}: neither {WHOLE} nor {INDEX}; other formats of weights are not read")
    return fitted(_safetensors(folder / name for name in names), config, where=str(folder))


def load_checkpoint(
    path: Path, config: FamilyConfig, name_map: Iterable[tuple[str, str]] = ()
) -> dict[str, NDArray[np.float32]]:
    """Every weight from a MindSpore `.ckpt` file (protobuf: nothing in it is executed) as float32.

    `name_map` are pairs of pattern and replacement (`re.sub`), applied before the built-in ones. Optimizer states and
    other parameters that are no weights of the decoder are ignored.

    Raises FileNotFoundError where there is no file, ValueError where it is damaged or the weights are not those of
    `config`.
    """
    import mindspore as ms  # noqa: PLC0415 - the other loader works without

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such checkpoint")
    try:
        stored: Mapping[str, Any] = ms.load_checkpoint(str(path))
    except Exception as error:  # whatever the parser of a damaged file raises
        raise ValueError(f"{path}: not a MindSpore checkpoint: {error}") from error
    rules = [(re.compile(pattern), new) for pattern, new in (*name_map, *NAME_MAP)]
    fused = [name for name in stored if "w_qkv" in name or "w_gate_hidden" in name]
    if fused:
        raise ValueError(
            f"{path}: {fused[0]} holds several projections in one weight, in an order that depends on how the run was "
            "parallelised; export the checkpoint with qkv_concat=False"
        )
    known = expected_shapes(config)
    pairs = ((_renamed(name, rules), value) for name, value in stored.items())
    weights = ((name, _float32(value)) for name, value in pairs if name in known)
    return fitted(weights, config, where=str(path))


def fitted(
    weights: Iterable[tuple[str, NDArray[np.float32]]], config: FamilyConfig, where: str
) -> dict[str, NDArray[np.float32]]:
    """Those weights that the decoder has. Raises ValueError where one is missing, left over or of another shape."""
    shapes = expected_shapes(config)
    found: dict[str, NDArray[np.float32]] = {}
    left: list[str] = []
    for name, values in weights:
        if name in shapes:
            if values.shape != shapes[name]:
                raise ValueError(f"{where}: {name} has shape {values.shape}, config.json says {shapes[name]}")
            found[name] = values
        elif not (name.endswith("rotary_emb.inv_freq") or (config.tied and name == "lm_head.weight")):
            left.append(name)
    missing = [name for name in shapes if name not in found]
    if missing or left:
        parts = [f"{what} {', '.join(names[:3])}" for what, names in (("missing", missing), ("unknown", left)) if names]
        raise ValueError(f"{where}: the weights do not fit config.json: {'; '.join(parts)}")
    return found


def _renamed(name: str, rules: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, new in rules:
        name = pattern.sub(new, name)
    return name


def _shards(index: Path) -> list[str]:
    try:
        placed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted({str(name) for name in placed.values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index}: not an index of safetensors files: {error}") from error
    for name in names:
        # an index from elsewhere may not point out of its folder
        if Path(name).name != name:
            raise ValueError(f"{index}: {name!r} is not a file beside it")
    return names


def _safetensors(paths: Iterable[Path]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Tensors of safetensors files, one file in memory at a time."""
    from safetensors import SafetensorError, deserialize  # noqa: PLC0415 - an extra

    for path in paths:
        try:
            # `safetensors.numpy` has no bfloat16, in which most models come
            tensors = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
        except SafetensorError as error:
            raise ValueError(f"{path}: not a safetensors file: {error}") from error
        for name, tensor in tensors:
            yield name, _decoded(name, tensor, path)


def _decoded(name: str, tensor: Mapping[str, Any], path: Path) -> NDArray[np.float32]:
    kind, raw, shape = tensor["dtype"], tensor["data"], tensor["shape"]
    if kind == "BF16":
        # the upper half of a float32
        values: NDArray[np.float32] = (np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16).view(np.float32)
        return values.reshape(shape)
    if kind not in _DTYPES:
        raise ValueError(f"{path}: {name} is stored as {kind}; expected F32, F16 or BF16")
    return np.frombuffer(raw, dtype=_DTYPES[kind]).astype(np.float32).reshape(shape)


def _float32(parameter: Any) -> NDArray[np.float32]:
    import mindspore as ms  # noqa: PLC0415

    values: NDArray[np.float32] = parameter.astype(ms.float32).asnumpy()
    return values
