"""What is read from `config.json`, and the shapes of batches: no framework needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cleanse.probes.mindspore_layout import FamilyConfig, Rotary
from cleanse.probes.mindspore_shapes import fill, plan_shapes, rung
from cleanse.probes.types import ProbeRecord
from hypothesis import given
from hypothesis import strategies as st
from mindspore_families import LLAMA3, SIZES


def _config(family: str, **extra: Any) -> FamilyConfig:
    return FamilyConfig.from_mapping({**SIZES, "model_type": family, **extra})


def test_biases_differ_by_family() -> None:
    assert _config("qwen2").attention_bias
    assert not _config("qwen2").output_bias
    assert _config("llama", attention_bias=True).output_bias
    assert not _config("mistral", attention_bias=True).attention_bias


def test_windows() -> None:
    assert _config("mistral", sliding_window=8).windows == (8, 8)
    assert _config("mistral", sliding_window=None).windows == (0, 0)
    assert _config("qwen2", sliding_window=8, use_sliding_window=False).windows == (0, 0)
    assert _config("qwen2", sliding_window=8, use_sliding_window=True, max_window_layers=1).windows == (0, 8)
    seen = _config("mistral", sliding_window=2).attention_bias_table(4, 2) == 0
    assert seen.astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "gpt2"}, "gpt2"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_what_the_decoder_has_not_is_refused_by_name(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    data = {**SIZES, "model_type": "llama", **change}
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in data.items() if v is not None}))
    with pytest.raises(ValueError, match=words):
        FamilyConfig.from_folder(tmp_path)


@pytest.mark.parametrize("kind", ["default", "linear", "llama3"])
def test_frequencies_are_those_of_transformers(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    rope = {**LLAMA3, "rope_type": kind}
    config = transformers.LlamaConfig(**{**SIZES, "head_dim": 32}, rope_parameters=rope)
    wanted = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config).inv_freq.numpy()
    rotary = Rotary(kind, 4.0, 1.0, 4.0, 32)
    np.testing.assert_allclose(rotary.frequencies(50_000.0, 32), wanted, rtol=1e-6)


def _record(length: int, targets: bool = True) -> ProbeRecord:
    return ProbeRecord(ids=np.arange(length), supervised=np.full(length, targets))


@given(
    lengths=st.lists(st.integers(0, 300), max_size=60),
    budget=st.integers(1, 2048),
    compile_from=st.sampled_from([None, 1, 3]),
)
def test_every_record_with_a_target_is_in_one_batch_that_holds_it(
    lengths: list[int], budget: int, compile_from: int | None
) -> None:
    records = [_record(length) for length in lengths]
    batches = plan_shapes(records, budget, compile_from=compile_from)
    placed = sorted(i for batch in batches for i in batch.indices)
    assert placed == [i for i, length in enumerate(lengths) if length > 1]
    for batch in batches:
        assert len(batch.indices) <= batch.rows
        assert batch.rows == 1 or batch.rows * batch.tokens <= budget
        assert max(lengths[i] for i in batch.indices) <= batch.tokens
    shapes = {(batch.rows, batch.tokens) for batch in batches if batch.compiled}
    assert len(shapes) <= len({rung(length) for length in lengths})
    assert not (shapes and compile_from is None)


def test_the_scale_is_one_over_the_targets_and_the_first_token_is_none() -> None:
    record = ProbeRecord(ids=np.array([5, 6, 7, 8]), supervised=np.array([True, True, False, True]))
    arrays = fill([record], rows=2, tokens=6)
    assert arrays.targets[0].tolist() == [6, 7, 8, 0, 0, 0]
    assert arrays.scale[0].tolist() == [0.5, 0.0, 0.5, 0.0, 0.0, 0.0]
    assert arrays.valid.sum(1).tolist() == [4.0, 0.0]
    assert not arrays.scale[1].any()
