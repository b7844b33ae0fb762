"""The rows we predict are the rows that the real Hugging Face Trainer feeds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cleanse import replaying as replay

pytest.importorskip("torch", reason="the Trainer needs torch")
pytest.importorskip("transformers", reason="this test runs the real Hugging Face Trainer: pip install transformers")
pytest.importorskip("accelerate", reason="this test runs the real Hugging Face Trainer: pip install accelerate")

ONE = {
    "plain": {"n": 23, "batch": 4, "epochs": 3},
    "accum": {"n": 37, "batch": 4, "accum": 3, "epochs": 2},
    "drop_last": {"n": 37, "batch": 4, "accum": 2, "epochs": 2, "drop_last": True},
    "data_seed": {"n": 30, "batch": 7, "epochs": 2, "seed": 1, "data_seed": 99},
    "sequential": {"n": 11, "batch": 3, "epochs": 2, "sampling": "sequential"},
    "resumed": {"n": 37, "batch": 4, "accum": 2, "epochs": 3, "resumed_at": 7},
    "no_skip": {"n": 37, "batch": 4, "accum": 2, "epochs": 3, "resumed_at": 7, "ignore_data_skip": True},
    "rebalance": {"n": 40, "batch": 4, "accum": 2, "epochs": 2, "sampling": "batch_rebalance", "drop_last": True},
}
TWO = {
    "plain": {"n": 23, "batch": 4, "epochs": 3},
    "tiny": {"n": 3, "batch": 4, "epochs": 2},
    "accum": {"n": 61, "batch": 4, "accum": 3, "epochs": 2},
    "short": {"n": 42, "batch": 4, "accum": 2, "epochs": 2},
    "drop_last": {"n": 61, "batch": 4, "accum": 2, "epochs": 2, "drop_last": True},
    "split": {"n": 45, "batch": 6, "epochs": 2, "split": True},
    "split_drop": {"n": 45, "batch": 6, "accum": 2, "epochs": 2, "split": True, "drop_last": True},
    "resumed": {"n": 61, "batch": 4, "accum": 2, "epochs": 2, "resumed_at": 5},
}
NAMES = {
    "batch": "per_device_batch",
    "split": "split_batches",
    "epochs": None,
    "n": None,
}


def trainer_runs(folder: Path, cases: dict, world: int) -> Path:
    (folder / "cases.json").write_text(json.dumps(cases))
    command = [sys.executable]
    if world > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    command += [str(Path(__file__).with_name("hf_run.py")), str(folder / "cases.json"), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory):
    return trainer_runs(tmp_path_factory.mktemp("one"), ONE, 1)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    return trainer_runs(tmp_path_factory.mktemp("two"), TWO, 2)


def predicted(case: dict, world: int) -> replay.Order:
    settings = {NAMES.get(k, k): v for k, v in case.items() if NAMES.get(k, k)}
    return replay.order("hf", case["n"], world_size=world, **settings)


def fed(folder: Path, name: str, rank: int) -> dict[int, list[tuple]]:
    steps: dict[int, list[tuple]] = {}
    for step, rows in json.loads((folder / f"{name}.{rank}.json").read_text()):
        steps.setdefault(step, []).append(tuple(rows))
    return steps


@pytest.mark.parametrize("name", [n for n in ONE if n != "rebalance"])
def test_one_rank(one_rank, name):
    order = predicted(ONE[name], 1)
    steps = fed(one_rank, name, 0)
    assert len(steps) >= 3
    for step, batches in steps.items():
        assert order.at(step).micro_batches == (tuple(batches),), f"step {step}"


@pytest.mark.parametrize("name", TWO)
def test_two_ranks(two_ranks, name):
    order = predicted(TWO[name], 2)
    by_rank = [fed(two_ranks, name, rank) for rank in range(2)]
    assert by_rank[0]
    for step in by_rank[0]:
        assert order.at(step).micro_batches == tuple(tuple(steps[step]) for steps in by_rank), f"step {step}"


def test_rebalanced_batches_are_known_as_sets(one_rank):
    order = predicted(ONE["rebalance"], 1)
    for step, batches in fed(one_rank, "rebalance", 0).items():
        found = order.at(step)
        assert found.micro_batches == ()
        assert sorted(found.rows) == sorted(row for batch in batches for row in batch)


def test_the_run_s_own_record_agrees_and_a_wrong_setting_is_noticed(one_rank):
    state = one_rank / "resumed" / "checkpoint-7"
    order = replay.order(config=state, rows=37, accum=2)
    assert order.settings.per_device_batch == 4
    assert order.at(7).rows == predicted(ONE["resumed"], 1).at(7).rows
    with pytest.raises(replay.OrderUnknown, match="recorded epoch"):
        replay.order(config=state, rows=37, accum=1)
    with pytest.raises(replay.OrderUnknown, match="recorded epoch"):
        replay.order(config=state, rows=64, accum=2)
