"""What a Ray worker does with a row: a job comes in, its answer goes out.

A job that fails is an answer too. Raised within Ray, a user's mistake would be retried, and lose its words on the way.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
from ray import cloudpickle

from cleanse import __version__
from cleanse.engines.failure import Failure

MOST_ATTEMPTS = 5
"""Of one job. Ray begins a job again for every worker or node that it loses; one that ends its workers must end too."""

Sums = tuple[int, int, int]
"""Input bytes, records, records held back: what a job reported, added up."""


@dataclass(frozen=True)
class Home:
    """What a worker needs to know of the process that sends the jobs."""

    version: str
    folder: str  # relative names in jobs are seen from here
    paths: tuple[str, ...]  # where it imports from

    @classmethod
    def here(cls) -> Home:
        """That of this process."""
        return cls(__version__, os.getcwd(), tuple(path for path in sys.path if path))  # noqa: PTH109 - as text

    def move_in(self) -> None:
        """Makes this process see files and modules as that one does, as far as they are on this node."""
        with suppress(OSError):
            os.chdir(self.folder)
        sys.path.extend(path for path in self.paths if path not in sys.path and os.path.isdir(path))  # noqa: PTH112


def row_of(index: int, function: Any, argument: Any) -> dict[str, Any]:
    """A job as a row of a Ray Dataset."""
    return {"index": index, "job": cloudpickle.dumps((function, argument))}


def answers_of(batch: pa.Table) -> list[tuple[int, str, Any, Sums]]:
    """Index, "done" or "failed", the result or the ``Failure``, and what was reported."""
    indices, answers = batch.column("index").to_pylist(), batch.column("answer").to_pylist()
    return [(index, *pickle.loads(answer)) for index, answer in zip(indices, answers, strict=True)]  # noqa: S301 - ours


def run_rows(batch: pa.Table, home: Home) -> pa.Table:
    """Runs the jobs of a batch, one as a rule."""
    answers = [pickle.dumps(_answer(job, home)) for job in batch.column("job").to_pylist()]
    return pa.table({"index": batch.column("index"), "answer": pa.array(answers, pa.binary())})


class Measurer:
    """``run_rows`` for an actor: its process, and with it the model that the first job loads, stays for all jobs."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Runs the jobs of a batch."""
        return run_rows(batch, self._home)


def _answer(job: bytes, home: Home) -> tuple[str, Any, Sums]:
    if home.version != __version__:
        return "failed", Failure(_other_version(home.version), None), (0, 0, 0)
    if (attempts := _attempts_before()) >= MOST_ATTEMPTS:
        return "failed", Failure(_hopeless(attempts), None), (0, 0, 0)
    home.move_in()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    sums = _Sums()
    try:
        function, argument = cloudpickle.loads(job)
        result = function(argument, sums)
        pickle.dumps(result)  # what cannot travel is a failure of this job and not of the batch
    except Exception as error:  # noqa: BLE001 - whatever it is, the main process reports it
        return "failed", Failure.of(error), sums.totals
    return "done", result, sums.totals


class _Sums:
    """Adds up what a job reports."""

    def __init__(self) -> None:
        self.totals: Sums = (0, 0, 0)

    def __call__(self, n_bytes: int, n_records: int, n_held: int) -> None:
        before = self.totals
        self.totals = (before[0] + n_bytes, before[1] + n_records, before[2] + n_held)


def _attempts_before() -> int:
    """How often Ray has begun this task already, 0 where it does not say."""
    core = getattr(ray._private.worker.global_worker, "core_worker", None)  # noqa: SLF001 - Ray tells it nowhere else
    counted = getattr(core, "get_current_task_attempt_number", None)
    return int(counted()) if counted is not None else 0


def _hopeless(attempts: int) -> str:
    return (
        f"its worker process, or the node under it, was lost {attempts} times, most likely because the memory ran out: "
        "use fewer --workers or a smaller --max-record-bytes. The same command continues where it stopped"
    )


def _other_version(wanted: str) -> str:
    return (
        f"node {socket.gethostname()} has cleanse {__version__}, and {wanted} was asked for: "
        "install the same version on every node"
    )
