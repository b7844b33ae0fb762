"""``cleanse replay`` as a user types it."""

import json

import pytest
from click.testing import CliRunner

import cleanse
from cleanse.cli import main

ROWS = "".join(json.dumps({"instruction": f"Say {i}.", "output": f"It is \u001b[2J{i}."}) + "\n" for i in range(12))


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(ROWS)
    return str(path)


def run(*arguments):
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


def test_the_rows_of_a_step_without_data_or_model():
    where = ["--trainer", "hf", "--seed", "42", "--step", "4817", "--per-device-batch", "4", "--accum", "8"]
    where += ["--world-size", "8", "--rows", "52002"]
    done = run(*where, "--json")
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)
    at = cleanse.order("hf", 52002, seed=42, per_device_batch=4, accum=8, world_size=8).at(4817)
    assert said["rows"] == list(at.rows)
    assert said["rows_before"] == list(at.rows_before)
    assert said["micro_batches"] == [[list(micro) for micro in rank] for rank in at.micro_batches]
    shown = run(*where)
    assert shown.exit_code == 0
    assert f"rank 7, forward pass 7: {' '.join(map(str, at.micro_batches[7][7]))}" in shown.stdout


def test_with_the_data_the_rules_are_asked(data):
    done = run(data, "--trainer", "sequential", "--per-device-batch", "4", "--step", "2", "--json")
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["rows"] == [4, 5, 6, 7]
    assert any("control" in rule or "ansi" in rule for rule in said["rules"]["4"])
    shown = run(data, "--trainer", "sequential", "--per-device-batch", "4", "--step", "2")
    assert "\u001b" not in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--trainer", "hf", "--rows", "10"], 2, "say which step"),
        (["--trainer", "hf", "--rows", "10", "--step", "1", "--set", "streaming=true"], 1, "no fixed order"),
        (["--trainer", "none", "--rows", "10", "--step", "1"], 2, "no trainer is called"),
        (["--trainer", "hf", "--step", "1"], 2, "how many rows"),
        (["--trainer", "hf", "--rows", "10", "--step", "1", "--set", "nonsense=1"], 2, "no such setting"),
        (["--ids", "no such file"], 2, "cannot be read"),
        (["--batch-id", "step-3", "--step", "4", "--trainer", "hf", "--rows", "9"], 2, "different steps"),
    ],
)
def test_mistakes_end_in_one_sentence(arguments, code, message):
    done = run(*arguments)
    assert done.exit_code == code, done.output
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_diagnosis_for_people_and_for_programs(data, tmp_path):
    pytest.importorskip("torch", reason="the replay runs a model")
    where = [data, "--trainer", "sequential", "--per-device-batch", "4", "--step", "2", "--model", "embedded"]
    done = run(*where, "--device", "cpu", "-o", tmp_path / "why")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(("NOT REPRODUCED", "DATA", "OPTIMISATION"))
    assert "\u001b" not in done.stdout
    assert (tmp_path / "why" / "capsule.json").is_file()
    again = run(tmp_path / "why", "--model", "embedded", "--device", "cpu", "--json")
    said = json.loads(again.stdout)
    assert list(said)[:6] == ["diagnosis", "culprits", "ranking", "step", "rows", "evidence"]
    assert said["rows"] == [4, 5, 6, 7]
