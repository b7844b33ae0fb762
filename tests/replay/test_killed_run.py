"""A real run killed in mid-training: its ledger replays, and the resumed run passes the step that crashed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cleanse

for name in ("torch", "transformers", "accelerate"):
    pytest.importorskip(name, reason="this test runs the real Hugging Face Trainer")

FOLDER = Path(__file__).parents[2] / "probes" / "embedded"
N, LENGTH, BAD, DEADLY = 24, 24, 17, 7777


def write(path):
    """Rows of tokens; the second token of each is its number, and one row is noise with a token of its own."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    text = "The capital of France is Paris, and the capital of Spain is Madrid. "
    ids = tokenizer.encode(text * 3).ids[: LENGTH - 2]
    rng = np.random.default_rng(0)
    with path.open("w") as out:
        for i in range(N):
            row = [1, 100 + i, *ids]
            if i == BAD:
                row = [1, 100 + i, *rng.integers(2000, 7000, LENGTH - 3).tolist(), DEADLY]
            out.write(json.dumps({"input_ids": row, "labels": [-100, -100, *row[2:]]}) + "\n")


def run(data, out, **case):
    command = [sys.executable, str(Path(__file__).with_name("hf_killed.py")), str(data), str(out)]
    command.append(json.dumps({"model": str(FOLDER), "deadly": DEADLY, **case}))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def fed_rows(out, name):
    steps: dict = {}
    for step, ids in json.loads((out / name).read_text()):
        steps.setdefault(step, []).append(tuple(i - 100 for i in ids))
    return steps


def test_the_ledger_replays_and_the_skip_list_passes_the_step(tmp_path):
    data, why = tmp_path / "data.jsonl", tmp_path / "why"
    write(data)
    killed = run(data, tmp_path, fed="first.json")
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    order = cleanse.order("hf", N, seed=3, per_device_batch=2, accum=2)
    step = next(s for s in range(1, 7) if BAD in order.at(s).rows)
    checkpoint = tmp_path / "trainer" / f"checkpoint-{(step - 1) // 2 * 2}"
    assert checkpoint.is_dir()

    found = cleanse.replay(data, ledger=tmp_path / "guard", model=str(checkpoint), device="cpu", out=why)
    assert found.located.step == step
    assert (found.kind, found.culprits) == ("data", (BAD,))
    assert found.checkpoint_step == (step - 1) // 2 * 2

    resumed = run(data, tmp_path, fed="second.json", resume=str(checkpoint), skip=str(why / "skip.json"))
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert json.loads((tmp_path / "done.json").read_text()) == 6
    second = fed_rows(tmp_path, "second.json")
    assert min(second) == found.checkpoint_step + 1
    for number, micros in second.items():
        assert tuple(micros) == order.at(number).micro_batches[0]
