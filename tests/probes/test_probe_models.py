"""Loading, devices, and what an import costs."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cleanse.probes.decoder import Decoder, load_decoder
from cleanse.probes.decoder_config import DecoderConfig
from cleanse.probes.devices import describe_devices, pick_device, pick_dtype
from cleanse.probes.model_files import ModelError, embedded_folder
from cleanse.probes.torch_backend import open_probe
from cleanse.probes.torch_models import load_model
from cleanse.probes.unigram import load_counts
from probe_families import own_decoder
from safetensors.torch import save_file

EMBEDDED = (embedded_folder() / "model.safetensors").exists()
needs_embedded = pytest.mark.skipif(not EMBEDDED, reason="no embedded model in this tree")


@pytest.mark.parametrize("module", ["cleanse", "cleanse.probes", "cleanse.probes.types", "cleanse.probes.devices"])
def test_importing_loads_no_framework(module):
    code = f"import sys, {module}; print([m for m in ('torch', 'mindspore', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def write_decoder(folder: Path, model: Decoder) -> None:
    weights = {n: p.detach().contiguous() for n, p in model.named_parameters()}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(model.config.to_json())


@pytest.mark.parametrize("tied", [True, False])
def test_our_decoder_and_transformers_agree(tmp_path, tied):
    transformers = pytest.importorskip("transformers")
    model = own_decoder(tied=tied, bias=False)
    write_decoder(tmp_path, model)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ours = load_decoder(tmp_path)
    ids = torch.arange(2, 50).view(2, 24)
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=1e-4, atol=1e-5)


def test_a_config_comes_back_as_written(tmp_path):
    config = DecoderConfig(61, 16, 24, 2, 4, 2, 4, rope_theta=50_000.0, tied=False)
    (tmp_path / "config.json").write_text(config.to_json())
    assert DecoderConfig.from_folder(tmp_path) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [({"model_type": "bert"}, "bert"), ({"hidden_act": "gelu"}, "gelu"), ({"mlp_bias": True}, "mlp")],
)
def test_other_layouts_are_refused(tmp_path, change, message):
    data = json.loads(DecoderConfig(61, 16, 24, 2, 4, 2, 4).to_json()) | change
    (tmp_path / "config.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=message):
        DecoderConfig.from_folder(tmp_path)


def test_missing_weights_are_told(tmp_path):
    model = own_decoder()
    write_decoder(tmp_path, model)
    save_file(
        {"model.norm.weight": torch.ones(16), "model.embed_tokens.weight": torch.ones(61, 16)},
        tmp_path / "model.safetensors",
    )
    with pytest.raises(ValueError, match="do not fit"):
        load_decoder(tmp_path)


def test_a_model_that_is_not_there_is_a_model_error(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEANSE_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="fetch smollm2"):
        load_model("smollm2")
    pytest.importorskip("transformers")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(tmp_path / "nothing"))


def test_pickled_weights_are_refused(tmp_path):
    pytest.importorskip("transformers")
    model = own_decoder()
    write_decoder(tmp_path, model)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError):
        load_model(str(tmp_path))


def test_devices_are_described_honestly():
    found = {d.name.split(":")[0]: d for d in describe_devices()}
    assert {"cuda", "npu", "mps", "cpu"} <= set(found)
    assert found["cpu"].available
    assert found["cuda"].available == torch.cuda.is_available()
    assert all(d.detail for d in found.values())
    assert pick_device("cpu") == "cpu"
    assert pick_dtype("cpu") == "float32"
    with pytest.raises(ValueError, match="fp32 or bf16"):
        pick_dtype("cpu", "fp16")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="not available"):
            pick_device("cuda")


@needs_embedded
def test_the_embedded_model_prefers_text_to_noise():
    probe = open_probe(device="cpu")
    text = "The committee will meet on Monday to decide how the money is going to be spent in the coming year."
    words = text.split()
    rng = np.random.default_rng(0)
    noise = "".join(chr(c) for c in rng.integers(33, 127, 200))
    shuffled = " ".join(rng.permutation(words))
    records = [r for t in (text, shuffled, noise) for r in probe.encode([(t, True)])]
    good, mixed, bad = probe.gradients(records)
    assert good.loss < mixed.loss
    assert good.loss < bad.loss
    assert good.context_gain > max(mixed.context_gain, bad.context_gain)
    assert good.nats_per_byte > 0


@needs_embedded
def test_the_embedded_folder_is_complete_and_small():
    folder = embedded_folder()
    config = DecoderConfig.from_folder(folder)
    assert load_counts(folder, config.vocab_size) is not None
    assert (config.pad_id, config.eos_id) == (0, 1)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 12_000_000


@needs_embedded
def test_bfloat16_is_near_float32():
    full, half = open_probe(device="cpu", dtype="fp32"), open_probe(device="cpu", dtype="bf16")
    records = full.encode([("Paris is the capital of France, and Berlin is the capital of Germany.", True)])
    a, b = full.gradients(records)[0], half.gradients(records)[0]
    assert b.loss == pytest.approx(a.loss, rel=0.02)
    assert b.grad_norm == pytest.approx(a.grad_norm, rel=0.05)
