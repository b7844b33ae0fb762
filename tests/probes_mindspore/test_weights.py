"""Weights from every kind of file, by every name they go by; damaged and foreign ones are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cleanse.probes.mindspore_layout import FamilyConfig
from cleanse.probes.mindspore_weights import expected_shapes, fitted, load_checkpoint, load_weights
from mindspore_families import SIZES

CONFIG = FamilyConfig.from_mapping({**SIZES, "model_type": "qwen2", "tie_word_embeddings": True})
safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")


def _random() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in expected_shapes(CONFIG).items()}


def test_half_precision_is_widened_and_bfloat16_exactly(tmp_path: Path) -> None:
    weights = _random()
    safetensors.save_file({name: w.astype(np.float16) for name, w in weights.items()}, tmp_path / "model.safetensors")
    loaded = load_weights(tmp_path, CONFIG)
    assert all(w.dtype == np.float32 for w in loaded.values())
    np.testing.assert_array_equal(loaded["model.norm.weight"], weights["model.norm.weight"].astype(np.float16))
    torch = pytest.importorskip("torch", reason="torch writes the bfloat16 file")
    from safetensors.torch import save_file

    narrow = {name: torch.from_numpy(w).bfloat16() for name, w in weights.items()}
    save_file(narrow, tmp_path / "model.safetensors")
    for name, values in load_weights(tmp_path, CONFIG).items():
        np.testing.assert_array_equal(values, narrow[name].float().numpy())


def test_shards_are_read_by_their_index(tmp_path: Path) -> None:
    weights = _random()
    names = sorted(weights)
    for i, part in enumerate((names[::2], names[1::2])):
        safetensors.save_file({name: weights[name] for name in part}, tmp_path / f"part-{i}.safetensors")
    where = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(names)}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    loaded = load_weights(tmp_path, CONFIG)
    assert set(loaded) == set(weights)
    assert all(np.array_equal(loaded[name], weights[name]) for name in names)
    index.write_text(json.dumps({"weight_map": {names[0]: "../elsewhere.safetensors"}}))
    with pytest.raises(ValueError, match="not a file beside it"):
        load_weights(tmp_path, CONFIG)
    index.write_text('{"weight_map": 3}')
    with pytest.raises(ValueError, match="not an index"):
        load_weights(tmp_path, CONFIG)


def test_what_does_not_fit_is_named() -> None:
    weights = _random()
    missing = {name: w for name, w in weights.items() if name != "model.norm.weight"}
    with pytest.raises(ValueError, match=r"missing model\.norm\.weight"):
        fitted(missing.items(), CONFIG, where="here")
    with pytest.raises(ValueError, match=r"unknown model\.layers\.9"):
        fitted([*weights.items(), ("model.layers.9.x", weights["model.norm.weight"])], CONFIG, where="here")
    with pytest.raises(ValueError, match=r"model\.norm\.weight has shape \(3,\)"):
        fitted([*missing.items(), ("model.norm.weight", np.zeros(3, np.float32))], CONFIG, where="here")
    # a tied head may be stored all the same
    assert "lm_head.weight" not in fitted([*weights.items(), ("lm_head.weight", np.zeros(1))], CONFIG, where="here")


def test_damaged_and_absent_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors"):
        load_weights(tmp_path, CONFIG)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 40)
    with pytest.raises(ValueError, match="not a safetensors file"):
        load_weights(tmp_path, CONFIG)


def _mindformers(name: str) -> str:
    for theirs, ours in (
        ("embed_tokens.weight", "tok_embeddings.embedding_weight"),
        (".self_attn.q_proj.", ".attention.wq."),
        (".self_attn.k_proj.", ".attention.wk."),
        (".self_attn.v_proj.", ".attention.wv."),
        (".self_attn.o_proj.", ".attention.wo."),
        (".mlp.gate_proj.", ".feed_forward.w1."),
        (".mlp.up_proj.", ".feed_forward.w3."),
        (".mlp.down_proj.", ".feed_forward.w2."),
        (".input_layernorm.", ".attention_norm."),
        (".post_attention_layernorm.", ".ffn_norm."),
        ("model.norm.", "model.norm_out."),
    ):
        name = name.replace(theirs, ours)
    return name


@pytest.mark.parametrize("rename", [str, _mindformers, lambda name: f"student.{name}"])
def test_a_mindspore_checkpoint_is_read_by_name_map(tmp_path: Path, rename: Callable[[str], str]) -> None:
    ms = pytest.importorskip("mindspore", reason="mindspore is not installed: see `make mindspore`")
    weights = _random()
    path = tmp_path / "step-7.ckpt"
    stored = [{"name": rename(name), "data": ms.Tensor(w)} for name, w in weights.items()]
    stored.append({"name": "adam_m.model.norm.weight", "data": ms.Tensor(np.zeros(3, np.float32))})
    ms.save_checkpoint(stored, str(path))
    loaded = load_checkpoint(path, CONFIG, name_map=[(r"^student\.", "")])
    assert all(np.array_equal(loaded[name], weights[name]) for name in weights)


def test_fused_and_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    ms = pytest.importorskip("mindspore", reason="mindspore is not installed: see `make mindspore`")
    path = tmp_path / "fused.ckpt"
    ms.save_checkpoint([{"name": "model.layers.0.attention.w_qkv.weight", "data": ms.Tensor([1.0])}], str(path))
    with pytest.raises(ValueError, match="qkv_concat"):
        load_checkpoint(path, CONFIG)
    path.write_bytes(b"\x80\x04pickle?")
    with pytest.raises(ValueError, match="not a MindSpore checkpoint"):
        load_checkpoint(path, CONFIG)
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "none.ckpt", CONFIG)
