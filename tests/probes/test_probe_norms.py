"""Ghost norms against the batch-1 loop, for every family."""

import numpy as np
import pytest
import torch
from cleanse.probes.torch_backend import TorchProbe
from cleanse.probes.torch_models import LoadedModel
from cleanse.probes.torch_oracle import loop_norm
from cleanse.probes.types import ProbeOptions, ProbeRecord
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from probe_families import FAMILIES, VOCABULARY

TOLERANCE = 1e-5


def probe_of(model, **kwargs):
    loaded = LoadedModel("tiny", model, None, first_id=1, pad_id=0, max_positions=64, folder=None)
    return TorchProbe(loaded, **kwargs)


def random_records(lengths, seed=0):
    rng = np.random.default_rng(seed)
    out = []
    for length in lengths:
        supervised = rng.random(length) < 0.7
        supervised[-1] = True
        out.append(ProbeRecord(ids=rng.integers(0, VOCABULARY, length), supervised=supervised, n_bytes=length))
    return out


def oracle(probe, record):
    ids, supervised = torch.from_numpy(record.ids), torch.from_numpy(record.supervised.copy())
    return loop_norm(probe.model, probe.trainable, ids, supervised)


@pytest.fixture(scope="module", params=list(FAMILIES))
def probe(request):
    return probe_of(FAMILIES[request.param]())


def test_every_family_is_exact_on_ragged_batches(probe):
    records = random_records([2, 3, 9, 10, 11, 40, 41])
    found = probe.gradients(records)
    assert probe.info.method == "ghost", probe.info.notes
    for record, evidence in zip(records, found, strict=True):
        losses, norm = oracle(probe, record)
        assert evidence.grad_norm == pytest.approx(norm, rel=TOLERANCE)
        assert evidence.loss == pytest.approx(float(losses.mean()), rel=TOLERANCE)
        assert evidence.n_tokens == record.supervised[1:].sum() == len(losses)


def test_both_passes_agree(probe):
    records = random_records([5, 17, 18, 30])
    forward, both = probe.losses(records), probe.gradients(records)
    for a, b in zip(forward, both, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-5)
        assert a.max_token_index == b.max_token_index
        assert np.isnan(a.grad_norm)


def true_gradients(probe, record):
    from cleanse.probes.torch_anatomy import model_logits
    from cleanse.probes.torch_oracle import requiring_grad

    ids, supervised = torch.from_numpy(record.ids), torch.from_numpy(record.supervised.copy())
    with requiring_grad(probe.trainable) as params:
        logits = model_logits(probe.model, ids[None])[0, :-1]
        loss = torch.nn.functional.cross_entropy(logits[supervised[1:]], ids[1:][supervised[1:]])
        grads = torch.autograd.grad(loss, params, allow_unused=True)
    return torch.cat([g.flatten() for g in grads if g is not None])


def test_sketches_keep_angles(probe):
    records = random_records([12, 12, 13, 30])
    found = probe.gradients(records, ProbeOptions(sketch=2048))
    exact = torch.stack([true_gradients(probe, r) for r in records])
    sketch = torch.from_numpy(np.stack([e.sketch for e in found]))
    scale = exact.norm(dim=1)
    error = (sketch @ sketch.T - exact @ exact.T) / (scale[:, None] * scale)
    assert float(error.abs().amax()) < 0.25


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(2, 33), min_size=1, max_size=6), budget=st.integers(8, 256), seed=st.integers(0, 99)
)
def test_any_shape_and_any_batching(lengths, budget, seed):
    records = random_records(lengths, seed)
    for model in (_tied(), _untied()):
        probe = probe_of(model, token_budget=budget)
        for record, evidence in zip(records, probe.gradients(records), strict=True):
            assert evidence.grad_norm == pytest.approx(oracle(probe, record)[1], rel=TOLERANCE)


def _tied():
    return FAMILIES["own tied"]()


def _untied():
    return FAMILIES["own untied, biases"]()
