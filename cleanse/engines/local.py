"""The engine for one machine: fresh worker processes, one job at a time each.

Workers are started as new interpreters and not forked (threads of Arrow and numba do not survive a fork), and not
through ``multiprocessing`` either: that would import the caller's main module again, which breaks in notebooks and
in scripts without a main guard.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cleanse.engines.failure import Failure
from cleanse.engines.job import Job, Report
from cleanse.errors import CleanseError

if TYPE_CHECKING:
    from typing_extensions import Self

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from cleanse.engines.worker import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1", "POLARS_MAX_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
_PATIENCE_SECONDS = 3.0


class LocalEngine:
    """Worker processes that live from the first ``run`` until the engine is closed."""

    def __init__(self, n_workers: int) -> None:
        self._n_workers = n_workers
        self._workers: list[_Worker] = []

    def run(self, jobs: Sequence[Job], report: Report) -> Iterator[Any]:
        """The results in the order of the jobs.

        A single job, or a single worker, runs in this process: nothing is won by starting another.

        Raises:
            CleanseError: a job failed, or its worker process died; the message names the job.
        """
        if min(self._n_workers, len(jobs)) <= 1:
            for job in jobs:
                try:
                    yield job.function(job.argument, report)
                except Exception as error:
                    raise Failure.of(error).as_error(job.label) from error
            return
        while len(self._workers) < min(self._n_workers, len(jobs)):
            self._workers.append(_Worker())
        yield from self._distribute(jobs, report)

    def _distribute(self, jobs: Sequence[Job], report: Report) -> Iterator[Any]:
        waiting = deque(enumerate(jobs))
        finished: dict[int, Any] = {}
        following = 0
        for worker in self._workers:
            worker.take(waiting)
        while following < len(jobs):
            busy = {worker.connection: worker for worker in self._workers if worker.job is not None}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index] # wait() gives back what it was given
                kind, content = worker.receive()
                if kind == "progress":
                    report(*content)
                elif kind == "failed":
                    assert worker.job is not None
                    raise content.as_error(worker.job[1].label)
                else:
                    assert worker.job is not None
                    finished[worker.job[0]] = content
                    worker.take(waiting)
            while following in finished:
                yield finished.pop(following)
                following += 1

    def check_folder(self, folder: Path | None, inputs: Iterable[str] = ()) -> None:
        """Nothing: worker processes of this machine see what this process sees."""

    def close(self, *, now: bool = False) -> None:
        """Ends the workers: at once, or when each has seen that no job follows."""
        for worker in self._workers:
            worker.dismiss(now=now)
        for worker in self._workers:
            worker.await_end()
        self._workers = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(now=error is not None)


class _Worker:
    def __init__(self) -> None:
        here, there = socket.socketpair()
        self.job: tuple[int, Job] | None = None
        self.connection = Connection(here.detach())
        arguments = [str(there.fileno()), str(os.getpid()), json.dumps(sys.path)]
        # A blocked signal stays blocked in the new program: Ctrl-C, which a terminal sends to every process of
        # the group, is then for the main process alone to handle, from the worker's very first instruction on.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this very interpreter, our own words
                [sys.executable, "-c", _BOOT, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=2,  # results on stdout are the main process's alone
                pass_fds=[there.fileno()],
                env={**os.environ, **ONE_THREAD},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            there.close()

    def take(self, waiting: deque[tuple[int, Job]]) -> None:
        """Sends the next job, if there is one."""
        self.job = waiting.popleft() if waiting else None
        if self.job is not None:
            try:
                self.connection.send((self.job[1].function, self.job[1].argument))
            except (BrokenPipeError, ConnectionResetError):
                raise self._death() from None

    def receive(self) -> tuple[str, Any]:
        """The next message. Raises CleanseError when the process died."""
        try:
            message: tuple[str, Any] = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._death() from None
        return message

    def _death(self) -> CleanseError:
        code = self._process.wait()
        label = self.job[1].label if self.job else "nothing"
        if code == -signal.SIGKILL:
            reason = (
                "was killed (SIGKILL), most likely because the machine ran out of memory: "
                "use fewer --workers or a smaller --max-record-bytes"
            )
        elif code < 0:
            reason = f"died of {signal.Signals(-code).name}"
        else:
            reason = f"ended with exit code {code}"
        return CleanseError(f"{label}: the worker process {reason}. The same command continues where it stopped")

    def dismiss(self, *, now: bool) -> None:
        """Asks the process to end. Closing its connection is enough for one that waits for a job."""
        self.connection.close()
        if now:
            self._process.terminate()

    def await_end(self) -> None:
        """Waits for the process, and ends it when it does not listen."""
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
