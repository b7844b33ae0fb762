"""The real Hugging Face Trainer on the embedded model: the benchmark's runs, a few of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

for name in ("torch", "transformers", "accelerate"):
    pytest.importorskip(name, reason="this test runs the real Hugging Face Trainer")


def test_a_planted_record_is_first_and_a_learning_rate_accuses_none(shared_data, tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / "replay.py"), str(shared_data)]
    command += ["--planted", "2", "--controls", "2", "--json", str(tmp_path / "found.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    planted = [one for one in found if one["what"] == "planted"]
    controls = [one for one in found if one["what"] == "control"]
    assert len(planted) == len(controls) == 2
    for one in planted:
        assert one["first"]
        assert one["norm_off"] < 5e-4  # three digits
    for one in controls:
        assert (one["diagnosis"], one["culprits"]) == ("optimisation", [])
