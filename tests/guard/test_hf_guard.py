"""The guard inside the real Hugging Face Trainer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cleanse import replaying as replay
from cleanse.guard import Ledger

pytest.importorskip("torch", reason="the Trainer needs torch")
pytest.importorskip("transformers", reason="this test runs the real Hugging Face Trainer: pip install transformers")
pytest.importorskip("accelerate", reason="this test runs the real Hugging Face Trainer: pip install accelerate")

BAD = 29
CHECKPOINT = 8
ORDER = {"seed": 5, "per_device_batch": 2, "accum": 2}


def guarded(folder: Path, cases: list[dict], world: int = 1) -> str:
    command = [sys.executable]
    if world > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    command += [str(Path(__file__).with_name("hf_guarded.py")), str(folder), json.dumps(cases)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs with a damaged row: watched only; its update skipped; stopped; stopped, then resumed with a skip list."""
    folder = tmp_path_factory.mktemp("guarded")
    resumed = {"folder": "resume", "bad": BAD, "skip": [BAD], "resume": f"checkpoint-{CHECKPOINT}", "out": "second"}
    cases = [
        {"folder": "watch", "bad": BAD},
        {"folder": "skip", "bad": BAD, "action": "skip"},
        {"folder": "resume", "bad": BAD, "action": "stop"},
        resumed,
    ]
    told = guarded(folder, cases)
    return folder, told


def result(folder: Path, name: str = "fed") -> dict:
    return json.loads((folder / f"{name}.0.json").read_text())


def bad_step() -> int:
    order = replay.order("hf", 48, **ORDER)
    return next(s for s in range(1, 13) if BAD in order.at(s).rows)


def test_the_ledger_has_the_rows_and_the_figures_of_the_trainer(runs):
    run = result(runs[0] / "watch")
    ledger = Ledger(runs[0] / "watch" / "guard")
    order = replay.order("hf", 48, **ORDER)
    assert ledger.last_step() == run["steps"] == 12
    for step in range(1, 13):
        assert ledger.at(step).micro_batches == order.at(step).micro_batches
        assert ledger.at(step).rows_before == order.at(step).rows_before
    logged = {e["step"]: e for e in run["log"] if "grad_norm" in e}
    for figures in ledger.figures():
        entry = logged[figures["step"]]
        assert figures["loss"] == pytest.approx(entry["loss"], abs=1e-3)
        assert figures["grad_norm"] == pytest.approx(entry["grad_norm"], rel=1e-4)
        assert figures["learning_rate"] == pytest.approx(entry["learning_rate"])
    told = {e["step"]: e["cleanse/param_norm"] for e in run["log"] if "cleanse/param_norm" in e}
    recorded = {f["step"]: f["param_norm"] for f in ledger.figures()}
    assert told == pytest.approx(recorded)  # what TensorBoard and Weights & Biases are given
    assert len(told) == 12
    assert recorded[1] == pytest.approx(run["norm_at_start"], rel=1e-5)


def test_the_damaged_row_s_step_is_told_with_its_rows(runs):
    step = bad_step()
    assert f"cleanse: step {step}, rank 0: " in runs[1]
    capsule = json.loads((runs[0] / "watch" / "guard" / f"step-{step}-rank-0" / "capsule.json").read_text())
    assert BAD in capsule["rows"]
    assert any(e.get("cleanse/spike") == 1.0 and e["step"] == step for e in result(runs[0] / "watch")["log"])


def test_a_skipped_update_changes_what_follows_and_nothing_before(runs):
    step = bad_step()
    watched, skipped = result(runs[0] / "watch"), result(runs[0] / "skip")
    assert [f[1] for f in skipped["fed"]] == [f[1] for f in watched["fed"]]  # the same rows, in the same order
    before, after = ({e["step"]: e["loss"] for e in run["log"] if "loss" in e} for run in (watched, skipped))
    assert all(after[s] == pytest.approx(before[s]) for s in range(1, step + 1))
    assert after[step + 1] != pytest.approx(before[step + 1], rel=1e-6)
    assert any(e.get("cleanse/skipped") == 1.0 for e in skipped["log"])


def test_resuming_with_the_skip_list_passes_the_step_and_keeps_all_rows_in_place(runs):
    step = bad_step()
    assert step > CHECKPOINT
    first, second = result(runs[0] / "resume"), result(runs[0] / "resume", "second")
    assert first["steps"] == step  # stopped at the spike
    assert second["steps"] == 12  # and passed it
    fed: dict = {}
    for s, ids, labels in second["fed"]:
        fed.setdefault(s, []).append(ids)
        for row, target in zip(ids, labels, strict=True):
            damaged = any(token >= 8 for token in row)
            assert set(target) == {-100} if damaged else target == row
    again: dict = {}
    for s, ids, _ in first["fed"]:
        again.setdefault(s, []).append(ids)
    assert min(fed) == CHECKPOINT + 1
    for s in range(CHECKPOINT + 1, step + 1):
        assert fed[s] == again[s]
    order = replay.order("hf", 48, **ORDER)
    for s in range(1, 13):
        assert Ledger(runs[0] / "resume" / "guard").at(s).micro_batches == order.at(s).micro_batches


def test_two_ranks_keep_a_ledger_each_and_stop_together(tmp_path):
    cases = [{"folder": "watch"}, {"folder": "stop", "action": "stop", "spiking_rank": "1"}]
    told = guarded(tmp_path, cases, world=2)
    order = replay.order("hf", 48, world_size=2, **ORDER)
    for folder, end in (("watch", 6), ("stop", 1)):
        ends = [json.loads((tmp_path / folder / f"fed.{rank}.json").read_text())["steps"] for rank in range(2)]
        assert ends == [end, end]
        ledger = Ledger(tmp_path / folder / "guard")
        assert len(ledger.files) == 2
        for s in range(1, end + 1):
            assert ledger.at(s).micro_batches == order.at(s).micro_batches
    assert "step 1, rank 1: the loss is" in told
    assert "step 1, rank 0" not in told
