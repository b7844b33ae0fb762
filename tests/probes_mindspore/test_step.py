"""A step replayed with MindSpore: the same numbers as with torch, and real half precision beside the prediction."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from mindspore_families import MODELS, SIZES, VOCABULARY, missing

if why := missing("mindspore", "torch", "transformers"):
    pytest.skip(why, allow_module_level=True)

from cleanse.probes.mindspore_backend import MindSporeProbe
from cleanse.probes.mindspore_backend import open_probe as open_mindspore
from cleanse.probes.mindspore_layout import FamilyConfig
from cleanse.probes.mindspore_models import LoadedModel
from cleanse.probes.mindspore_weights import expected_shapes
from cleanse.probes.torch_backend import open_probe as open_torch
from cleanse.probes.types import ProbeRecord

WEIGHTS = [0.2, 0.5, 0.3]


def _records() -> list[ProbeRecord]:
    rng = np.random.default_rng(3)
    lengths = rng.integers(8, 24, 3)
    return [
        ProbeRecord(ids=rng.integers(2, VOCABULARY, n).astype(np.int64), supervised=rng.random(n) < 0.7)
        for n in lengths.tolist()
    ]


@pytest.mark.parametrize("name", ["llama-tied", "qwen2-untied"])
def test_both_frameworks_replay_the_same_step(name: str, tmp_path: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    family, more = MODELS[name]
    config = getattr(transformers, f"{family}Config")(**SIZES, **more)
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(tmp_path)
    ours = open_mindspore(str(tmp_path), device="cpu", mode="pynative").step(_records(), WEIGHTS)
    theirs = open_torch(str(tmp_path), device="cpu", dtype="float32").step(_records(), WEIGHTS)
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-4)
    assert ours.grad_norm == pytest.approx(theirs.grad_norm, rel=1e-4)


def test_half_precision_overflows_where_the_watch_says_it_will() -> None:
    config = FamilyConfig.from_mapping({**SIZES, "model_type": "llama"})
    rng = np.random.default_rng(0)
    weights = {
        name: (rng.standard_normal(shape) * 0.2 if len(shape) == 2 else np.ones(shape)).astype(np.float32)
        for name, shape in expected_shapes(config).items()
    }
    for name in ("gate", "up"):
        weights[f"model.layers.0.mlp.{name}_proj.weight"] *= 300
    probe = MindSporeProbe(LoadedModel("test", config, weights, None, None, None), mode="pynative")
    (record, *_) = _records()
    watched = probe.half(record, weight=0.5, loss_scale=1.0, dtype="float32")
    real = probe.half(record, weight=0.5, loss_scale=1.0, dtype="float16")
    assert math.isfinite(watched.loss)
    assert watched.activation_amax > 65504
    assert watched.forward_place == "model.layers.0.mlp.down_proj input"
    assert not math.isfinite(real.loss)
    assert watched.grad_norm == pytest.approx(probe.step([record], [1.0]).grad_norm, rel=1e-4)
