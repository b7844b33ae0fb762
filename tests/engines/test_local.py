from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jobs
import psutil
import pytest

from cleanse.engines.failure import InternalError
from cleanse.engines.job import Job
from cleanse.engines.local import LocalEngine
from cleanse.errors import CleanseError


def _ignore(*_: int) -> None:
    pass


def _jobs(function, arguments):
    return [Job(function, n, f"piece {n}") for n in arguments]


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_order_and_progress_adds_up(workers: int) -> None:
    seen = [0, 0, 0]

    def report(*more: int) -> None:
        for i, n in enumerate(more):
            seen[i] += n

    with LocalEngine(workers) as engine:
        results = list(engine.run(_jobs(jobs.slow_square, range(8)), report))
    assert [square for square, _ in results] == [n * n for n in range(8)]
    assert seen == [80, 8, 4]
    processes = {pid for _, pid in results}
    assert (processes == {os.getpid()}) if workers == 1 else (os.getpid() not in processes and len(processes) > 1)


def test_workers_serve_a_second_run_and_use_one_thread_each() -> None:
    with LocalEngine(2) as engine:
        first = {pid for _, pid in engine.run(_jobs(jobs.slow_square, range(6)), _ignore)}
        second = {pid for _, pid in engine.run(_jobs(jobs.slow_square, range(6)), _ignore)}
        assert first == second
        assert list(engine.run(_jobs(jobs.settings, range(2)), _ignore)) == [(1, "1")] * 2
    assert not any(psutil.pid_exists(pid) for pid in first)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_defect_names_the_piece_and_keeps_its_traceback(workers: int) -> None:
    with (
        pytest.raises(InternalError, match=r"piece 3: internal error \(ValueError: three") as caught,
        LocalEngine(workers) as engine,
    ):
        list(engine.run(_jobs(jobs.fail_on_three, range(6)), _ignore))
    assert "in fail_on_three" in caught.value.trace


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (jobs.speak_to_user, "piece 0: the file is gone: restore it"),
        (jobs.fill_disk, r"piece 0: no room left to write part\.arrow .* same command"),
    ],
)
def test_what_users_can_mend_is_told_without_a_traceback(workers: int, function, words: str) -> None:
    with pytest.raises(CleanseError, match=words) as caught, LocalEngine(workers) as engine:
        list(engine.run(_jobs(function, [0] * workers), _ignore))
    assert not isinstance(caught.value, InternalError)


def test_a_killed_worker_names_the_piece_it_was_reading() -> None:
    words = r"piece 2: .*SIGKILL.*memory.*--workers.*same command"
    with pytest.raises(CleanseError, match=words), LocalEngine(2) as engine:
        list(engine.run(_jobs(jobs.die_of_memory, range(4)), _ignore))


def test_a_worker_that_exits_is_an_error_and_not_a_hang() -> None:
    with pytest.raises(CleanseError, match=r"piece \d: .*exit code 7"), LocalEngine(2) as engine:
        list(engine.run(_jobs(jobs.exit_quietly, range(4)), _ignore))


def test_leaving_on_an_error_ends_the_workers() -> None:
    engine = LocalEngine(2)
    with pytest.raises(CleanseError), engine:
        list(engine.run(_jobs(jobs.fail_on_three, range(6)), _ignore))
    assert not [child for child in psutil.Process().children() if "cleanse.engines.worker" in " ".join(child.cmdline())]


_PARENT = """
import sys
sys.path[:0] = [{folder!r}]
import jobs
from cleanse.engines.job import Job
from cleanse.engines.local import LocalEngine
with LocalEngine(2) as engine:
    list(engine.run([Job(jobs.note_pid_and_wait, {out!r}, "wait")] * 2, lambda *_: None))
"""


def _start_parent(out: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    script = _PARENT.format(folder=str(Path(__file__).parent), out=str(out))
    parent = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 30
    while len(list(out.iterdir())) < 2:
        assert time.monotonic() < deadline, "the workers never began"
        time.sleep(0.05)
    return parent, [int(path.name) for path in out.iterdir()]


def _gone(pids: list[int], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids):
            return True
        time.sleep(0.05)
    return False


def test_workers_die_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    parent, workers = _start_parent(tmp_path)
    parent.kill()
    parent.wait()
    assert _gone(workers)


def test_ctrl_c_is_for_the_main_process_alone(tmp_path: Path) -> None:
    parent, workers = _start_parent(tmp_path)
    os.killpg(parent.pid, signal.SIGINT)  # what a terminal does
    _, errors = parent.communicate(timeout=20)
    assert _gone(workers)
    assert errors.count(b"Traceback") == 1, "only the main process says KeyboardInterrupt: " + errors.decode()
    assert b"KeyboardInterrupt" in errors
