"""What happens to odd records, and what a pass returns beyond loss and norm. No transformers needed."""

import math

import numpy as np
import pytest
import torch
from cleanse.probes import torch_backend
from cleanse.probes.features import min_window_mean, safe_loss_scale
from cleanse.probes.torch_models import LoadedModel
from cleanse.probes.types import ProbeOptions, ProbeRecord
from probe_families import VOCABULARY, own_decoder


@pytest.fixture
def probe():
    loaded = LoadedModel("tiny", own_decoder(), None, first_id=1, pad_id=0, max_positions=64, folder=None)
    return torch_backend.TorchProbe(loaded)


def record(ids, supervised=None):
    ids = np.array(ids, dtype=np.int64)
    mask = np.ones(len(ids), dtype=bool) if supervised is None else np.array(supervised, dtype=bool)
    return ProbeRecord(ids=ids, supervised=mask, n_bytes=2 * len(ids))


def test_a_record_without_targets_has_no_loss_and_breaks_nothing(probe):
    nothing = [record([]), record([5]), record([5, 6, 7], [True, False, False])]
    for run in (probe.losses, probe.gradients):
        *empty, fine = run([*nothing, record([1, 2, 3])])
        for evidence in empty:
            assert evidence.n_tokens == 0
            assert math.isnan(evidence.loss)
            assert not evidence.problem
        assert fine.loss > 0


def test_an_id_outside_the_vocabulary_is_told(probe):
    bad, negative, fine = probe.gradients([record([1, VOCABULARY]), record([1, -1]), record([1, 2])])
    assert str(VOCABULARY) in bad.problem
    assert "-1" in negative.problem
    assert not fine.problem
    assert fine.grad_norm > 0


def test_too_long_is_told(probe):
    (evidence,) = probe.losses([record(np.ones(65))])
    assert "64 positions" in evidence.problem


def test_one_record_that_overflows_leaves_the_others_alone():
    # Untied: a tied head meets the infinite row in every softmax.
    loaded = LoadedModel("tiny", own_decoder(tied=False), None, first_id=1, pad_id=0, max_positions=64, folder=None)
    probe = torch_backend.TorchProbe(loaded)
    (alone,) = probe.gradients([record([1, 2, 3, 4])])
    with torch.no_grad():
        loaded.model.model.embed_tokens.weight[7] = torch.inf
    fine, broken = probe.gradients([record([1, 2, 3, 4]), record([1, 7, 3, 4])])
    assert not broken.loss_finite
    assert not broken.grad_finite
    assert fine.loss_finite
    assert fine.grad_norm == pytest.approx(alone.grad_norm, rel=1e-5)


def test_the_worst_token_is_found(probe):
    one = record([1, 2, 3, 4, 5, 6])
    (evidence,) = probe.losses([one], ProbeOptions(token_losses=True))
    assert evidence.max_token_loss == evidence.token_losses.max()
    assert evidence.max_token_index == 1 + int(evidence.token_losses.argmax())
    assert evidence.nats_per_byte == pytest.approx(evidence.token_losses.sum() / 12, rel=1e-5)


def test_gains_need_a_baseline(probe):
    records = [record([1, 2, 3]), record([1, 2, 4])]
    assert math.isnan(probe.losses(records)[0].context_gain)
    probe.set_baseline(records)
    common, rare = probe.losses([record([1, 2, 2]), record([1, 9, 9])])
    assert rare.context_gain + rare.loss > common.context_gain + common.loss


def test_out_of_memory_halves_the_batch(probe, monkeypatch):
    sizes = []
    real = torch_backend.loss_pass

    def tight(anatomy, batch):
        sizes.append(len(batch.ids))
        if len(batch.ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(anatomy, batch)

    monkeypatch.setattr(torch_backend, "loss_pass", tight)
    records = [record([1, i, 3, 4]) for i in range(2, 9)]
    found = probe.losses(records)
    assert max(sizes) == 7
    assert all(e.loss > 0 for e in found)
    monkeypatch.setattr(torch_backend, "loss_pass", lambda *_: (_ for _ in ()).throw(MemoryError()))
    assert probe.losses(records[:1])[0].problem == "out of memory"


def test_amax_sees_the_product_inside_the_mlp(probe):
    (plain,) = probe.gradients([record([1, 2, 3, 4])], ProbeOptions(amax=True))
    mlp = probe.model.model.layers[0].mlp
    with torch.no_grad():
        mlp.up_proj.weight *= 1e4
        mlp.down_proj.weight /= 1e4
    (scaled,) = probe.gradients([record([1, 2, 3, 4])], ProbeOptions(amax=True))
    assert scaled.loss == pytest.approx(plain.loss, rel=1e-3)
    assert scaled.activation_amax > 50 * plain.activation_amax
    assert plain.safe_loss_scale == safe_loss_scale(plain.grad_amax)
    assert 2 * plain.safe_loss_scale * plain.grad_amax > 65504 >= plain.safe_loss_scale * plain.grad_amax


def test_padding_does_not_count_for_amax(probe):
    alone = probe.gradients([record([1, 2, 3])], ProbeOptions(amax=True))[0]
    beside = probe.gradients([record([1, 2, 3]), record(np.arange(1, 15))], ProbeOptions(amax=True))[0]
    assert beside.activation_amax == pytest.approx(alone.activation_amax, rel=1e-5)
    assert beside.grad_amax == pytest.approx(alone.grad_amax, rel=1e-5)


def test_the_smallest_window():
    values = np.concatenate([np.full(40, 2.0), np.full(32, -1.0), np.full(40, 2.0)]).astype(np.float32)
    assert min_window_mean(values) == -1.0
    assert min_window_mean(values[:3]) == 2.0
    assert math.isnan(min_window_mean(values[:0]))
