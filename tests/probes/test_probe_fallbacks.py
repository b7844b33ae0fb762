"""Layers without a rule: vmap per module, and the loop where even that does not help."""

import numpy as np
import pytest
import torch
from cleanse.probes.torch_backend import TorchProbe
from cleanse.probes.torch_models import LoadedModel
from cleanse.probes.torch_oracle import loop_norm
from cleanse.probes.types import ProbeRecord
from probe_families import VOCABULARY, own_decoder
from torch import nn


class Odd(nn.Module):
    """A gated layer nobody has a rule for."""

    def __init__(self, width):
        super().__init__()
        self.a = nn.Parameter(torch.randn(width, width) * 0.2)
        self.b = nn.Parameter(torch.randn(width) * 0.2)

    def forward(self, x):
        return x + torch.tanh(x @ self.a) * self.b


def measure(model):
    loaded = LoadedModel("odd", model, None, first_id=1, pad_id=0, max_positions=64, folder=None)
    probe = TorchProbe(loaded)
    rng = np.random.default_rng(1)
    records = [ProbeRecord(rng.integers(0, VOCABULARY, n), np.ones(n, dtype=bool)) for n in (4, 9, 10, 11)]
    found = probe.gradients(records)
    for record, evidence in zip(records, found, strict=True):
        ids, supervised = torch.from_numpy(record.ids), torch.from_numpy(record.supervised)
        _, norm = loop_norm(probe.model, probe.trainable, ids, supervised)
        assert evidence.grad_norm == pytest.approx(norm, rel=1e-5)
    return probe


def test_a_layer_without_a_rule_goes_through_vmap():
    model = own_decoder()
    layer = model.model.layers[0]
    layer.post_attention_layernorm = nn.Sequential(layer.post_attention_layernorm, Odd(16))
    assert measure(model).info.method == "ghost"


def test_a_layer_used_twice_goes_through_the_loop():
    model = own_decoder()
    model.model.layers[1] = model.model.layers[0]
    probe = measure(model)
    assert probe.info.method == "loop"
    assert "more than once" in probe.info.notes[0]


def test_two_modules_with_one_weight_go_through_the_loop():
    model = own_decoder()
    model.model.layers[1].mlp.up_proj.weight = model.model.layers[0].mlp.up_proj.weight
    probe = measure(model)
    assert probe.info.method == "loop"
    assert "shares a parameter" in probe.info.notes[0]


def test_partly_frozen_models_count_what_is_trained():
    model = own_decoder(tied=False)
    for p in model.model.layers[0].parameters():
        p.requires_grad = False
    model.model.embed_tokens.weight.requires_grad = False
    assert measure(model).info.method == "ghost"
