"""The step as the trainer had it: against torch's own gradients, and what real half precision does."""

import math

import numpy as np
import pytest
import torch
from cleanse.probes.torch_backend import TorchProbe
from cleanse.probes.torch_models import LoadedModel
from cleanse.probes.types import ProbeRecord
from probe_families import FAMILIES, VOCABULARY, llama


def records(n=4, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        ids = rng.integers(2, VOCABULARY, int(rng.integers(6, 20)))
        made.append(ProbeRecord(ids=ids.astype(np.int64), supervised=rng.random(len(ids)) < 0.6))
    return made


def probe_of(model):
    return TorchProbe(LoadedModel("test", model, None, None, 0, 64, None))


def reference(model, parameters, rows, weights):
    """One loss over everything, one backward pass by torch itself."""
    total = torch.zeros(())
    for row, weight in zip(rows, weights, strict=True):
        ids = torch.from_numpy(row.ids)
        labels = torch.where(torch.from_numpy(row.supervised), ids, -100)
        out = model(input_ids=ids[None]).logits[0, :-1]
        total = total + weight * torch.nn.functional.cross_entropy(out, labels[1:], ignore_index=-100)
    grads = torch.autograd.grad(total, parameters, allow_unused=True)
    return float(total.detach()), math.sqrt(sum(float(g.double().square().sum()) for g in grads if g is not None))


@pytest.mark.parametrize("family", ["llama tied", "qwen2 untied", "gpt2 tied", "lora on llama"])
def test_the_gradient_of_a_weighted_step_is_torch_s_own(family):
    model = FAMILIES[family]()
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    probe = probe_of(model)
    rows, weights = records(), [0.1, 0.5, 0.25, 0.15]
    found = probe.step(rows, weights)
    assert not any(p.requires_grad or p.grad is not None for p in probe.model.parameters())
    parameters = [p for name, p in model.named_parameters() if name in names]
    for p in parameters:
        p.requires_grad_()
    loss, norm = reference(model, parameters, rows, weights)
    assert found.loss == pytest.approx(loss, rel=1e-5)
    assert found.grad_norm == pytest.approx(norm, rel=1e-5)


def test_the_norms_of_single_rows_are_those_of_steps_of_one_row():
    probe = probe_of(llama(tied=True))
    for row, measured in zip(rows := records(), probe.gradients(rows), strict=True):
        alone = probe.step([row], [1.0])
        assert measured.grad_norm == pytest.approx(alone.grad_norm, rel=1e-4)
        assert measured.loss == pytest.approx(alone.loss, rel=1e-5)
        watched = probe.half(row, weight=0.5, loss_scale=8.0, dtype="float32")
        assert watched.grad_norm == pytest.approx(alone.grad_norm, rel=1e-4)


def test_rows_without_a_supervised_token_take_no_part():
    probe = probe_of(llama(tied=True))
    rows = records(3)
    blank = ProbeRecord(ids=rows[0].ids, supervised=np.zeros(len(rows[0].ids), np.bool_))
    assert probe.step([*rows, blank], [0.5, 0.3, 0.2, 0.0]) == probe.step(rows, [0.5, 0.3, 0.2])


def test_half_precision_overflows_where_the_watch_says_it_will():
    """One token's embedding makes the product inside the MLP leave float16: no output shows it, an input does."""
    model = llama(tied=False)
    layer = model.model.layers[0]
    with torch.no_grad():
        layer.mlp.gate_proj.weight.mul_(2000)
        layer.mlp.up_proj.weight.mul_(2000)
    probe = probe_of(model)
    (row, *_) = records()
    watched = probe.half(row, weight=1.0, loss_scale=1.0, dtype="float32")
    real = probe.half(row, weight=1.0, loss_scale=1.0, dtype="float16")
    assert math.isfinite(watched.loss)
    assert watched.activation_amax > 65504
    assert watched.forward_place == "the input of model.layers.0.mlp.down_proj" == real.forward_place
    assert not math.isfinite(real.loss)
    assert math.isfinite(probe.half(row, weight=1.0, loss_scale=1.0, dtype="bfloat16").loss)


@pytest.mark.parametrize("powers", [-1, 1])
def test_the_predicted_scale_is_where_real_gradients_begin_to_overflow(powers):
    model = llama(tied=False)
    with torch.no_grad():  # large gradients at the logits' weight: they are what overflows
        model.model.norm.weight.mul_(50)
    probe = probe_of(model)
    (row, *_) = records()
    scale = 2.0 ** math.floor(math.log2(65504 / probe.half(row, weight=1.0, loss_scale=1.0, dtype="float32").grad_amax))
    real = probe.half(row, weight=1.0, loss_scale=scale * 2.0**powers, dtype="float16")
    assert math.isfinite(real.grad_norm) == (powers < 0)
