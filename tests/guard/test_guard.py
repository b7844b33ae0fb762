"""The ledger, the spike rules, and the guard in a plain loop."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanse.guard import Answer, Guard, Ledger, LedgerWriter, SpikeDetector, SpikeRules
from cleanse.replaying import RunLog

ordinary = st.floats(1.8, 2.2)
broken = st.sampled_from([math.nan, math.inf, -math.inf])


def run(detector, losses, norms=None):
    return [detector.judge(x, None if norms is None else norms[i]) for i, x in enumerate(losses)]


@given(st.lists(ordinary, min_size=30, max_size=200))
@settings(max_examples=50, deadline=None)
def test_an_ordinary_run_is_left_alone(losses):
    assert not any(run(SpikeDetector(), losses, losses))


@given(st.lists(st.one_of(ordinary, broken), min_size=30, max_size=200), st.floats(6.0, 9.9))
@settings(max_examples=50, deadline=None)
def test_values_that_are_not_finite_never_enter_the_window(losses, spike):
    """A NaN in its window makes every later step a spike, or none: a detector that is poisoned by what it looks for."""
    losses = [*([2.0] * 20), *losses]
    detector = SpikeDetector()
    told = run(detector, losses)
    assert [bool(t) for t in told] == [not math.isfinite(x) for x in losses]
    assert not detector.judge(2.0)
    (reason,) = detector.judge(spike)
    assert "robust deviations above" in reason


def test_the_absolute_rule_needs_no_history():
    assert SpikeDetector().judge(10.5) == ("the loss is 10.500 (limit 10)",)
    assert not SpikeDetector().judge(9.9)
    assert not SpikeDetector(SpikeRules(max_loss=None)).judge(10.5)
    assert SpikeDetector().judge(math.nan) == ("the loss is nan",)
    assert SpikeDetector().judge(1.0, math.inf) == ("the gradient norm is inf",)


def test_a_gradient_spike_beside_an_ordinary_loss():
    detector = SpikeDetector()
    rng = np.random.default_rng(0)
    assert not any(run(detector, [2.0] * 60, (1 + 0.1 * rng.standard_normal(60)).tolist()))
    (reason,) = detector.judge(2.0, 11_140.0)
    assert reason.startswith("the gradient norm is 1.11e+04")


def test_a_scaler_may_overflow_but_not_fall_to_its_minimum():
    detector = SpikeDetector()
    scale = 2.0**24
    for _ in range(7):
        assert not detector.judge(2.0, math.inf, scale)
        scale /= 2
    assert detector.judge(2.0, math.inf, scale) == (
        f"the gradient overflowed 8 times in a row, last at loss scale {scale:,.6g}",
    )
    assert not detector.judge(2.0, 1.0, 2.0)
    assert detector.judge(2.0, 1.0, 1.0) == ("the loss scale fell to 1",)
    assert not detector.judge(2.0, 1.0, 1.0)
    assert not detector.judge(2.0, 1.0, 2.0)
    assert detector.judge(2.0, 1.0, 1.0)


def test_a_steady_climb_is_told_once():
    detector = SpikeDetector(SpikeRules(window=40, max_z=None))
    told = [detector.judge(2.0, math.exp(i / 12)) for i in range(80)]
    said = [t for t in told if t]
    assert len(said) == 1
    assert "climbs steadily" in said[0][0]
    flat = SpikeDetector(SpikeRules(window=40, max_z=None))
    assert not any(flat.judge(2.0, 1.0 + i % 5) for i in range(200))


def test_the_ledger_tells_the_rows_of_a_step(tmp_path):
    for rank in range(2):
        writer = LedgerWriter(tmp_path, rank, 2)
        for step in (1, 2, 3):
            for micro in range(2):
                writer.rows(step, micro, [100 * step + 10 * rank + micro, "id"])
            writer.step(step, {"loss": 2.0 if step < 3 else math.nan, "grad_norm": 1.0, "loss_scale": None})
        writer.close()
    found = Ledger(tmp_path).at(2)
    assert found.micro_batches == (((200, "id"), (201, "id")), ((210, "id"), (211, "id")))
    assert found.rows == (200, "id", 201, 210, 211)
    assert found.rows_before == (100, "id", 101, 110, 111)
    assert found.epoch is None
    figures = Ledger(tmp_path).figures()
    assert math.isnan(figures[2]["loss"])
    assert RunLog.from_history(figures, 3).usual_loss == 2.0
    with pytest.raises(ValueError, match="knows steps 1 to 3, not step 4"):
        Ledger(tmp_path).at(4)
    with pytest.raises(ValueError, match="no ledger"):
        Ledger(tmp_path / "else")


def test_a_resumed_run_replaces_the_steps_it_feeds_again(tmp_path):
    guard = Guard(tmp_path, rank=0, world_size=1)
    for step in range(1, 6):
        guard.rows([step])
        guard.rows([step + 50])
        guard.step(loss=2.0)
    again = Guard(tmp_path, rank=0, world_size=1, first_step=4)
    again.step(ids=[400], loss=2.0)
    ledger = Ledger(tmp_path)
    assert ledger.at(4).rows == (400,)
    assert ledger.at(3).rows == (3, 53)
    assert ledger.at(5).rows_before == (400,)
    assert ledger.last_step() == 4


CHILD = """
import sys, time
from cleanse.guard import Guard
guard = Guard(sys.argv[1], rank=0, world_size=1)
step = 0
while True:
    step += 1
    guard.rows([step, step + 1])
    print(step, flush=True)
    guard.step(loss=2.0, grad_norm=1.0)
"""


def test_a_killed_process_loses_nothing_that_it_began(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for _ in range(300):
        line = child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    rest = child.stdout.read().split("\n")
    child.wait()
    last = int([line, *[r for r in rest if r]][-1])
    ledger = Ledger(tmp_path)
    assert last <= ledger.last_step() <= last + 1
    assert ledger.at(last).rows == (last, last + 1)
    # and the file can be written on, whatever the kill left at its end
    with ledger.files[0].open("ab") as file:
        file.write(b'{"t":"rows","step":99999,"mi')
    Guard(tmp_path, rank=0, world_size=1, first_step=last + 1).step(ids=[7], loss=2.0)
    assert ledger.at(last + 1).rows == (7,)
    assert ledger.at(last).rows == (last, last + 1)


def test_a_spike_is_told_at_once_and_leaves_a_capsule(tmp_path, capsys):
    records = {i: {"text": f"row {i}"} for i in range(10)}
    guard = Guard(tmp_path, action="skip", rank=0, world_size=1, record=records.__getitem__, settings={"seed": 1})
    assert not guard.step(ids=np.array([0, 1]), loss=2.0)
    judged = guard.step(ids=[2, 3], loss=13.0, grad_norm=50.0)
    assert judged
    assert judged.answer is Answer.SKIP
    assert "step 2, rank 0: the loss is 13.000 (limit 10). Rows: 2, 3" in capsys.readouterr().err
    capsule = json.loads((tmp_path / "step-2-rank-0" / "capsule.json").read_text())
    assert capsule["rows"] == [2, 3]
    assert capsule["settings"]["seed"] == 1
    rows = [json.loads(x) for x in (tmp_path / "step-2-rank-0" / "rows.jsonl").read_text().splitlines()]
    assert [r["record"]["text"] for r in rows] == ["row 2", "row 3"]
    assert Ledger(tmp_path).at(2).rows == (2, 3)


def test_control_characters_of_an_id_do_not_reach_the_terminal(tmp_path, capsys):
    Guard(tmp_path, rank=0, world_size=1).step(ids=["a\x1b[2J"], loss=99.0)
    assert "\x1b" not in capsys.readouterr().err


def test_ranks_agree(tmp_path):
    calls = []

    def any_rank(yes):
        calls.append(yes)
        return True  # the other rank spiked

    guard = Guard(tmp_path, action="stop", rank=1, world_size=2, any_rank=any_rank)
    judged = guard.step(ids=[1], loss=2.0)
    assert (judged.answer, judged.reasons, bool(judged)) == (Answer.STOP, (), True)
    assert calls == [False]
    quiet = Guard(tmp_path, rank=1, world_size=2, any_rank=any_rank)
    assert quiet.step(ids=[1], loss=99.0).answer is Answer.GO_ON
    assert calls == [False]  # going on needs no agreement


def test_the_training_does_not_die_of_its_guard(tmp_path, capsys):
    def unreadable(row):
        raise OSError("gone")

    guard = Guard(tmp_path, rank=0, world_size=1, record=unreadable, max_capsules=1)
    assert guard.step(ids=[1], loss=99.0)
    assert guard.step(ids=[2], loss=99.0)
    assert not (tmp_path / "step-2-rank-0").exists()
    with pytest.raises(ValueError, match="go_on, skip or stop"):
        Guard(tmp_path, action="explode")
    with pytest.raises(TypeError, match=r"call guard.rows and guard.step"):
        guard.attach(object())


def test_a_step_costs_less_than_a_millisecond(tmp_path):
    guard = Guard(tmp_path, rank=0, world_size=1)
    for _ in range(130):
        guard.step(ids=range(64), loss=2.0, grad_norm=1.0)
    start = time.process_time()
    for _ in range(200):
        guard.step(ids=range(64), loss=2.0, grad_norm=1.0)
    assert (time.process_time() - start) / 200 < 1e-3


def test_importing_the_guard_loads_no_framework():
    code = "import sys, cleanse.guard; print([m for m in ('torch', 'transformers', 'mindspore') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.strip() == "[]"
