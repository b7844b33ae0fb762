"""fp16 with a loss scale of 1,024 and a planted record that overflows: the benchmark's runs, one or two of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("backend", ["torch", "mindspore"])
def test_the_overflowing_row_is_named_with_the_safe_scale(backend, shared_data, tmp_path):
    for name in {backend, "torch", "transformers"}:
        pytest.importorskip(name, reason=f"the {backend} run needs {name}")
    command = [sys.executable, str(ROOT / "benchmarks" / "replay_half.py"), str(shared_data), "--backend", backend]
    command += ["--runs", "1", "--json", str(tmp_path / "found.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "GLOG_v": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (one,) = json.loads((tmp_path / "found.json").read_text())
    assert one["diagnosis"] in {"precision", "data"}
    assert one["culprits"] == [one["row"]]
    assert one["safe_loss_scale"] is not None
    if backend == "torch":
        assert one["bf16_finite"]
