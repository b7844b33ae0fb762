"""Functions for workers to run: they are imported by name in another process."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

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
