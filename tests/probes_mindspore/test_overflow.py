"""The seed of many crashes: one record that fp16 cannot hold under a loss scale which all the others bear."""

from __future__ import annotations

import numpy as np
import pytest
from cleanse.probes.types import ProbeOptions, ProbeRecord, RecordEvidence
from mindspore_families import SIZES, missing

if why := missing("mindspore"):
    pytest.skip(why, allow_module_level=True)

import mindspore as ms
from cleanse.probes.mindspore_backend import MindSporeProbe
from cleanse.probes.mindspore_decoder import Decoder, DecoderLoss, tables
from cleanse.probes.mindspore_layout import FamilyConfig
from cleanse.probes.mindspore_models import LoadedModel
from cleanse.probes.mindspore_overflow import loss_scale, predict_overflows, replay_overflows
from cleanse.probes.mindspore_shapes import fill
from cleanse.probes.mindspore_weights import expected_shapes
from mindspore import amp

FAINT, HUGE = 7, 9  # token ids
SCALE = 1024.0


@pytest.fixture(scope="module")
def probe() -> MindSporeProbe:
    """A random model with a token whose embedding is almost zero, and one whose embedding is very large.

    The first is what a token never trained looks like: its norm divides by nearly nothing, and the gradient explodes.
    The second overflows in the forward pass.
    """
    ms.set_device("CPU")
    config = FamilyConfig.from_mapping({**SIZES, "model_type": "llama", "rms_norm_eps": 1e-12})
    rng = np.random.default_rng(0)
    weights = {}
    for name, shape in expected_shapes(config).items():
        weights[name] = (rng.standard_normal(shape) * 0.2 if len(shape) == 2 else np.ones(shape)).astype(np.float32)
    weights["model.embed_tokens.weight"][FAINT] *= 1e-4
    weights["model.embed_tokens.weight"][HUGE] *= 1e6
    return MindSporeProbe(LoadedModel("test", config, weights, None, None, None), mode="pynative")


def _batch() -> list[ProbeRecord]:
    rng = np.random.default_rng(1)
    rows = [rng.integers(20, 150, 16) for _ in range(5)]
    rows[1][0] = FAINT
    rows[3][3] = HUGE
    supervised = np.arange(16) > 5
    return [ProbeRecord(ids=row.astype(np.int64), supervised=supervised) for row in rows]


def test_the_record_that_overflows_is_named_and_the_median_record_is_not(probe: MindSporeProbe) -> None:
    records = _batch()
    evidence = probe.gradients(records, ProbeOptions(amax=True))
    predicted = predict_overflows(evidence, amp.StaticLossScaler(SCALE))
    assert predicted.forward == (3,)
    assert predicted.backward == (1,)
    assert not predicted.scale_too_high
    assert predicted.median_safe_scale > SCALE
    # and so it is in real fp16, with the model and the scaler that a MindSpore run has
    replayed = probe.replay(records, amp.StaticLossScaler(SCALE))
    assert [i for i, one in enumerate(replayed) if not one.gradients_finite] == [1, 3]
    assert [i for i, one in enumerate(replayed) if not one.loss_finite] == [3]
    for one, fp32 in zip(replayed, evidence, strict=True):
        if one.loss_finite:
            assert one.loss == pytest.approx(fp32.loss, rel=2e-2)
    # so it is with auto_mixed_precision itself, whatever else its fp16 norms do
    made = DecoderLoss(amp.auto_mixed_precision(Decoder(probe.loaded.config, probe.loaded.weights), "O2"))
    inputs = []
    for record in records:
        arrays = fill([record], 1, 16)
        rows = (ms.Tensor(x) for x in (arrays.ids, arrays.targets, arrays.scale))
        inputs.append((*rows, *tables(probe.loaded.config, 16)))
    own = replay_overflows(made, inputs, amp.StaticLossScaler(SCALE))
    assert [i for i, one in enumerate(own) if not one.gradients_finite] == [1, 3]
    # without a loss scale only what overflows in the forward pass is left
    assert [one.gradients_finite for one in probe.replay([records[1], records[3]], 1.0)] == [True, False]


def test_a_dynamic_scale_names_only_who_would_hold_it_down(probe: MindSporeProbe) -> None:
    evidence = probe.gradients(_batch(), ProbeOptions(amax=True))
    scaler = amp.DynamicLossScaler(scale_value=2.0**24, scale_factor=2, scale_window=2000)
    predicted = predict_overflows(evidence, scaler)
    assert predicted.dynamic
    assert predicted.backward == (1,)  # at 2^24 itself every record overflows
    assert all(one.grad_amax * 2.0**24 > 65504 for one in evidence if one.grad_amax > 0)


def test_a_static_scale_that_is_too_high_for_all_is_not_blamed_on_a_record() -> None:
    alike = [RecordEvidence(n_tokens=3, activation_amax=10.0, grad_amax=1.0) for _ in range(5)]
    assert predict_overflows(alike, 2.0**20).scale_too_high
    assert not predict_overflows(alike, 2.0**10).scale_too_high
    assert predict_overflows([], 1024).backward == ()


def test_every_kind_of_loss_scale_is_read() -> None:
    assert loss_scale(128) == (128.0, False)
    assert loss_scale(amp.StaticLossScaler(512)) == (512.0, False)
    assert loss_scale(amp.DynamicLossScaler(2.0**16, 2, 1000)) == (65536.0, True)
    assert loss_scale(amp.FixedLossScaleManager(256)) == (256.0, False)
    assert loss_scale(amp.DynamicLossScaleManager(2.0**10)) == (1024.0, True)
    with pytest.raises(TypeError, match="no loss scale"):
        loss_scale("big")
