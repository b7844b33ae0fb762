"""The same numbers as torch on the same weights: the reason that a verdict does not depend on the framework."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from cleanse.probes.types import ProbeOptions, ProbeRecord, RecordEvidence
from mindspore_families import MODELS, missing

if why := missing("mindspore", "torch", "transformers"):
    pytest.skip(why, allow_module_level=True)

from cleanse.probes import mindspore_backend, torch_backend

LOSS, NORM = 1e-5, 1e-4  # relative


def _same(found: Sequence[RecordEvidence], wanted: Sequence[RecordEvidence], records: Sequence[ProbeRecord]) -> None:
    for ours, theirs, record in zip(found, wanted, records, strict=True):
        assert ours.problem == theirs.problem
        assert ours.n_tokens == theirs.n_tokens == record.n_tokens
        if not record.n_tokens:
            assert np.isnan(ours.loss)
            assert np.isnan(ours.grad_norm)
            continue
        np.testing.assert_allclose(ours.token_losses, theirs.token_losses, rtol=2e-5, atol=2e-5)
        assert ours.loss == pytest.approx(theirs.loss, rel=LOSS)
        assert ours.max_token_loss == pytest.approx(theirs.max_token_loss, rel=LOSS)
        assert ours.max_token_index == theirs.max_token_index
        assert ours.nats_per_byte == pytest.approx(theirs.nats_per_byte, rel=LOSS)
        assert ours.grad_norm == pytest.approx(theirs.grad_norm, rel=NORM, nan_ok=True)


@pytest.mark.parametrize("name", MODELS)
def test_losses_norms_and_sketches_are_those_of_torch(
    name: str, make_model: Callable[[str], Path], records: list[ProbeRecord]
) -> None:
    folder = str(make_model(name))
    options = ProbeOptions(sketch=8, amax=True, token_losses=True)
    theirs = torch_backend.open_probe(folder, device="cpu")
    probe = mindspore_backend.open_probe(folder, device="cpu", mode="pynative", token_budget=100)
    wanted = theirs.gradients(records, options)
    found = probe.gradients(records, options)
    _same(found, wanted, records)
    _same(probe.losses(records, options), theirs.losses(records, options), records)
    for ours, reference in zip(found, wanted, strict=True):
        if not ours.n_tokens:
            continue
        np.testing.assert_allclose(ours.sketch, reference.sketch, rtol=1e-3, atol=1e-4 * reference.grad_norm)
        # torch also sees the activation function's output, which is a module there
        assert ours.activation_amax == pytest.approx(reference.activation_amax, rel=1e-4)
        assert ours.grad_amax <= reference.grad_amax * (1 + 1e-4)
        assert ours.grad_amax >= 0.2 * reference.grad_amax


@pytest.mark.parametrize("name", ["llama-untied-biases-llama3", "qwen2-tied"])
def test_graph_mode_gives_the_same_with_empty_rows(
    name: str, make_model: Callable[[str], Path], records: list[ProbeRecord]
) -> None:
    folder = str(make_model(name))
    options = ProbeOptions(token_losses=True)
    short = [record for record in records if len(record.ids) <= 32]  # one shape, so one compilation
    probe = mindspore_backend.open_probe(folder, device="cpu", mode="graph", token_budget=4 * 32)
    wanted = torch_backend.open_probe(folder, device="cpu").gradients(short, options)
    _same(probe.gradients(short, options), wanted, short)


def test_graph_mode_with_sketch_and_amax(make_model: Callable[[str], Path], records: list[ProbeRecord]) -> None:
    folder = str(make_model("qwen2-tied"))
    options = ProbeOptions(sketch=4, amax=True)
    short = [record for record in records if len(record.ids) <= 32]
    wanted = mindspore_backend.open_probe(folder, device="cpu", mode="pynative").gradients(short, options)
    found = mindspore_backend.open_probe(folder, device="cpu", mode="graph", token_budget=96).gradients(short, options)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.grad_norm == pytest.approx(theirs.grad_norm, rel=1e-5)
        assert ours.activation_amax == pytest.approx(theirs.activation_amax, rel=1e-5)
        assert ours.grad_amax == pytest.approx(theirs.grad_amax, rel=1e-4)
        np.testing.assert_allclose(ours.sketch, theirs.sketch, rtol=1e-3, atol=1e-4 * theirs.grad_norm)


def test_a_record_is_measured_alike_alone_and_in_a_batch(
    make_model: Callable[[str], Path], records: list[ProbeRecord]
) -> None:
    probe = mindspore_backend.open_probe(str(make_model("llama-tied")), device="cpu", mode="pynative")
    together = probe.gradients(records)
    for record, one in zip(records, together, strict=True):
        alone = probe.gradients([record])[0]
        assert alone.loss == pytest.approx(one.loss, rel=1e-5, nan_ok=True)
        assert alone.grad_norm == pytest.approx(one.grad_norm, rel=1e-4, nan_ok=True)


def test_ids_outside_the_vocabulary_and_positions_are_told(make_model: Callable[[str], Path]) -> None:
    probe = mindspore_backend.open_probe(str(make_model("llama-tied")), device="cpu", mode="pynative")
    everything = np.ones(200, dtype=np.bool_)
    bad = [
        ProbeRecord(ids=np.array([1, 2, 160]), supervised=everything[:3]),
        ProbeRecord(ids=np.array([1, -1]), supervised=everything[:2]),
        ProbeRecord(ids=np.zeros(200, dtype=np.int64), supervised=everything),
        ProbeRecord(ids=np.zeros(0, dtype=np.int64), supervised=everything[:0]),
    ]
    found = probe.losses(bad)
    assert "token id 160 is outside" in found[0].problem
    assert "token id -1 is outside" in found[1].problem
    assert "200 tokens" in found[2].problem
    assert found[3].problem == ""
    assert found[3].n_tokens == 0


def _embedded() -> Path:
    own = os.environ.get("CLEANSE_EMBEDDED_DIR")
    return Path(own) if own else Path(__file__).parents[2] / "probes" / "embedded"


@pytest.mark.skipif(not (_embedded() / "model.safetensors").exists(), reason=f"no embedded model at {_embedded()}")
@pytest.mark.parametrize("mode", ["pynative", "graph"])
def test_the_embedded_model_gives_the_evidence_of_torch(mode: str) -> None:
    options = ProbeOptions(sketch=8 if mode == "pynative" else 0, amax=mode == "pynative", token_losses=True)
    theirs = torch_backend.open_probe(device="cpu")
    probe = mindspore_backend.open_probe(device="cpu", mode=mode, token_budget=256)
    texts = [
        "The cat sat on the mat.",
        "def f(x):\n    return x + 1",
        "\u041f\u0440\u0438\u0432\u0435\u0442",
        "aaaa" * 9,
    ]
    both = [
        (theirs.encode([("Go on:", False), (t, True)]), probe.encode([("Go on:", False), (t, True)])) for t in texts
    ]
    for torch_records, own_records in both:
        np.testing.assert_array_equal(torch_records[0].ids, own_records[0].ids)
    records = [own[0] for _, own in both]
    found, wanted = probe.gradients(records, options), theirs.gradients(records, options)
    _same(found, wanted, records)
    assert probe.info.parameters == theirs.info.parameters
    for ours, reference in zip(found, wanted, strict=True):
        assert ours.context_gain == pytest.approx(reference.context_gain, rel=1e-4, abs=1e-4)
        if mode == "pynative":
            assert ours.activation_amax == pytest.approx(reference.activation_amax, rel=1e-4)
            assert ours.grad_amax == pytest.approx(reference.grad_amax, rel=1e-3)
            np.testing.assert_allclose(ours.sketch, reference.sketch, rtol=1e-2, atol=1e-4 * reference.grad_norm)
