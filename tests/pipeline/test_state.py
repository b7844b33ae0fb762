from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cleanse.atomic import committed, read_json, rename, write_json
from cleanse.config import differences
from cleanse.errors import CleanseError, NoRecordsError, UsageError
from cleanse.state import RunState

ME = {"inputs": ["a.jsonl"], "suspects": "keep"}
INPUTS = [{"name": "a.jsonl", "path": "/nowhere/a.jsonl", "bytes": 3, "changed_ns": 5}]


def test_the_same_command_finds_what_is_there(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with RunState(out, ME) as state:
        assert not state.resumed
        state.pin_inputs(INPUTS)
        write_json(state.path("inspect", 3, ".json"), [1])
    with RunState(out, ME) as state:
        assert state.resumed
        assert not state.finished
        state.pin_inputs(INPUTS)
        assert read_json(state.path("inspect", 3, ".json")) == [1]
        state.finish()
        assert not state.path("inspect", 3, ".json").exists()
    with RunState(out, ME) as state:
        assert state.finished


def test_another_command_is_told_what_differs(tmp_path: Path) -> None:
    with RunState(tmp_path, ME) as state:
        write_json(state.path("inspect", 0, ".json"), [])
    with pytest.raises(
        UsageError, match=r"unfinished run of a different command: suspects was 'keep', now 'quarantine'"
    ):
        RunState(tmp_path, {**ME, "suspects": "quarantine"})
    RunState(tmp_path, ME).close()  # the refusal gave the lock back


def test_changed_inputs_are_named(tmp_path: Path) -> None:
    with RunState(tmp_path / "out", ME) as state:
        state.pin_inputs(INPUTS)
        with pytest.raises(CleanseError, match=r"input changed since this run began: a\.jsonl"):
            state.pin_inputs([{**INPUTS[0], "bytes": 4}])


@pytest.mark.parametrize("names", [["notes.txt"], [".cleanse/other"], [".hidden", ".cleanse/lock"]])
def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="not empty and was not written by cleanse"):
        RunState(tmp_path, ME)
    assert all((tmp_path / name).read_text() == "mine" for name in names)


@pytest.mark.parametrize("left", [[], ["lock"], ["lock", "run.json.5f0c27a1d9e4.tmp"]])
def test_a_process_killed_at_its_very_start_leaves_a_usable_folder(tmp_path: Path, left: list[str]) -> None:
    (tmp_path / ".cleanse").mkdir()
    for name in left:
        (tmp_path / ".cleanse" / name).write_text("")
    with RunState(tmp_path, ME) as state:
        assert not state.resumed


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        RunState(tmp_path / "out", ME)
    with pytest.raises(UsageError, match="lies below one"):
        RunState(tmp_path / "out" / "below", ME)


def test_an_unwritable_place_says_so(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        target = Path("/proc/cleanse-out")  # where even root makes no folder
    else:
        tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
        target = tmp_path / "out"
    with pytest.raises(CleanseError, match="cannot write to the output folder"):
        RunState(target, ME)


def test_two_scans_do_not_share_a_folder(tmp_path: Path) -> None:
    with RunState(tmp_path, ME), pytest.raises(CleanseError, match=rf"process {os.getpid()}\) is writing to"):
        RunState(tmp_path, ME)


_HOLDER = """
import os, sys, time
from pathlib import Path
from cleanse.state import RunState
state = RunState(Path(sys.argv[1]), {"inputs": ["a.jsonl"], "suspects": "keep"})
print("held", flush=True)
time.sleep(600)
"""


def test_a_killed_scan_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(CleanseError, match="is writing to"):
        RunState(tmp_path, ME)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    RunState(tmp_path, ME).close()


def fail_after_work(out: Path, error: CleanseError) -> None:
    with RunState(out, ME) as state:
        write_json(state.path("inspect", 0, ".json"), [])
        raise error


def test_a_run_that_came_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError), RunState(tmp_path / "out", ME):
        raise UsageError("no such format")
    assert not (tmp_path / "out").exists()
    with pytest.raises(NoRecordsError):
        fail_after_work(tmp_path / "out", NoRecordsError("empty"))
    assert not (tmp_path / "out").exists()


def test_a_run_with_work_done_is_kept_for_the_next(tmp_path: Path) -> None:
    with pytest.raises(CleanseError):
        fail_after_work(tmp_path / "out", CleanseError("worker killed"))
    assert (tmp_path / "out" / ".cleanse" / "inspect" / "000000.json").exists()


def test_an_uncommitted_file_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(TypeError), committed(tmp_path / "a") as temporary:
        temporary.write_text(temporary.write_text("half"))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".cleanse").mkdir()
    (tmp_path / ".cleanse" / "b.tmp").write_text("left by a killed process")
    (tmp_path / ".cleanse" / "lock").touch()
    (tmp_path / ".cleanse" / "run.json").write_text('{"identity": {}, "inputs": null, "finished": false}')
    RunState(tmp_path, {}).close()
    assert not (tmp_path / ".cleanse" / "b.tmp").exists()


def test_a_rename_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    for _ in range(2):
        rename(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "x"
    with pytest.raises(FileNotFoundError):
        rename(tmp_path / "c", tmp_path / "d")


def test_what_changed_is_said_shortly() -> None:
    before = {"probe": {"budget": 0.1, "model": "a"}, "rules_fingerprint": "x", "trainer": {"loss": "all"}}
    after = {"probe": {"budget": 0.2, "model": "a"}, "rules_fingerprint": "y", "trainer": None}
    assert differences(before, after) == ["probe budget was 0.1, now 0.2", "trainer was on, now off"]
    assert differences({"rules_fingerprint": "x"}, {"rules_fingerprint": "y"}) == [
        "the rules or their libraries changed"
    ]
