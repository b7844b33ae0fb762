"""Jobs whose files lie in another place: fetched before, sent after, and nothing kept on the worker's disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from cleanse.engines.job import Engine, Job, Report
from cleanse.storage.remote import Remote

SCRATCH = ".job-"
"""Between the name of the run's folder on this machine and what tells one process's copies from another's."""


@dataclass(frozen=True)
class StoredTask:
    """A job's function with the names, within the output folder, of what it reads and commits."""

    function: Callable[[Any, Report], Any]
    argument: Any  # a dataclass with a field ``folder``, the run's own within the output folder
    folder: str  # its name there
    reads: tuple[str, ...]
    writes: tuple[str, ...]  # in the order in which they may appear: the last one says that all are there
    url: str
    scratch: str  # names the folder of copies: one for all jobs of a process and scan, so that caches by path hold


def run_stored(task: StoredTask, report: Report) -> Any:
    """Runs the function on copies of its files and sends what it commits."""
    scratch = Path(tempfile.gettempdir()) / f"{task.scratch}-{os.getpid()}"
    remote = Remote(task.url, scratch)
    scratch.mkdir(mode=0o700, exist_ok=True)  # records are nobody else's business
    try:
        for name in task.reads:
            remote.pull(scratch / name)
        result = task.function(replace(task.argument, folder=scratch / task.folder), report)
        for name in task.writes:
            remote.push(scratch / name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return result


def sweep(local: Path) -> None:
    """Removes what jobs left that were killed on this machine; the caller holds the run's folder."""
    for left in Path(tempfile.gettempdir()).glob(f"{local.name}{SCRATCH}*"):
        shutil.rmtree(left, ignore_errors=True)


class StoredEngine:
    """Any engine, for an output folder that its workers do not have on a disk."""

    def __init__(self, engine: Engine, remote: Remote, committed: set[Path]) -> None:
        """``committed`` learns which files are there once a job has ended."""
        self._engine = engine
        self._remote = remote
        self._committed = committed
        self._scratch = f"{remote.local.name}{SCRATCH}{uuid4().hex[:12]}"

    def run(self, jobs: Sequence[Job], report: Report) -> Iterator[Any]:
        """The results in the order of the jobs. Raises CleanseError naming the job that failed."""
        results = self._engine.run([self._stored(job) for job in jobs], report)
        for job, result in zip(jobs, results, strict=True):
            self._committed.update(job.writes)
            yield result

    def _stored(self, job: Job) -> Job:
        task = StoredTask(
            job.function,
            job.argument,
            self._name(job.argument.folder),
            tuple(map(self._name, job.reads)),
            tuple(map(self._name, job.writes)),
            self._remote.url,
            self._scratch,
        )
        return replace(job, function=run_stored, argument=task)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._remote.local).as_posix()
