"""Functions for workers to run: they are imported by name in another process."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

from cleanse.atomic import committed
from cleanse.engines.job import Report
from cleanse.errors import CleanseError


def slow_square(n: int, report: Report) -> tuple[int, int]:
    """Later jobs end earlier; gives the process too."""
    time.sleep(0.05 * (n % 3))
    report(10, 1, n % 2)
    return n * n, os.getpid()


def fail_on_three(n: int, report: Report) -> int:
    if n == 3:
        raise ValueError("three is right out")
    return n


def die_of_memory(n: int, report: Report) -> int:
    if n == 2:
        os.kill(os.getpid(), signal.SIGKILL)  # what the kernel does to a process when memory runs out
    return n


def exit_quietly(n: int, report: Report) -> int:
    os._exit(7)


def speak_to_user(n: int, report: Report) -> int:
    raise CleanseError("the file is gone: restore it")


def fill_disk(n: int, report: Report) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "part.arrow")


def note_pid_and_wait(folder: str, report: Report) -> None:
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)


def settings(n: int, report: Report) -> tuple[int, str]:
    import pyarrow as pa

    return pa.cpu_count(), os.environ.get("NUMBA_NUM_THREADS", "")


def write_slowly(task: tuple[str, int], report: Report) -> int:
    """Commits a file in many small writes, so that another attempt can write it at the same time."""
    path, n = task
    with committed(Path(path)) as temporary, temporary.open("w") as file:
        for i in range(n):
            file.write(f"{i}\n")
            file.flush()
            time.sleep(0.005)
    return n


def kill_once(task: tuple[str, int], report: Report) -> tuple[int, int]:
    """Ends its process in the middle of its first attempt at job 2."""
    folder, n = task
    report(10, 1, 0)
    if n == 2 and not Path(folder, "killed").exists():
        Path(folder, "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return n, os.getpid()


def always_die(n: int, report: Report) -> int:
    if n == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def where(n: int, report: Report) -> str:
    """The node it runs on."""
    import ray

    return ray.get_runtime_context().get_node_id()


def outlive(task: tuple[str, int, str], report: Report) -> str:
    """Never ends on the node that is to be lost; elsewhere it waits until that node has begun a job."""
    folder, n, doomed = task
    node = where(n, report)
    if node == doomed:
        Path(folder, f"begun-{n}").touch()
        time.sleep(600)
    deadline = time.monotonic() + 60
    while not list(Path(folder).glob("begun-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    return node


def relative(name: str, report: Report) -> str:
    return Path(name).read_text()


def end_late(folder: str, report: Report) -> None:
    """Notes that it was let through to its end."""
    Path(folder, "begun").touch()
    time.sleep(3)
    Path(folder, "ended").touch()


def wait_and_fail(folder: str, report: Report) -> None:
    while not Path(folder, "begun").exists():
        time.sleep(0.05)
    raise CleanseError("the file is gone: restore it")
