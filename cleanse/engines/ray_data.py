"""The engine for clusters: jobs are rows of a Ray Dataset, a block each.

Rows and not read tasks, because the same rows can go to stateless tasks and to a pool of actors that keep a model. They
are small and stay in the memory of the process that sends them, so that no lost node takes a job with it: Ray begins
the jobs of a lost worker again elsewhere, and a commit is one atomic rename however many attempts there were.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import ray
from ray.data import ActorPoolStrategy, DataContext, TaskPoolStrategy
from ray.data.exceptions import ExecutionTimeoutError

from cleanse.engines import ray_nodes
from cleanse.engines.job import Job, Report
from cleanse.engines.ray_connection import Connection, connect
from cleanse.engines.ray_worker import Home, Measurer, answers_of, row_of, run_rows
from cleanse.errors import CleanseError
from cleanse.storage.filesystem import is_remote

if TYPE_CHECKING:
    from typing_extensions import Self

_LONGEST_SECONDS = 6 * 3600.0  # without one result; a job takes minutes
_ACCELERATORS = {"cuda": "GPU", "npu": "NPU", "ascend": "NPU"}


class RayEngine:
    """A connection to a cluster, made at the first use and given up when the engine is closed."""

    def __init__(
        self,
        address: str | None = None,
        *,
        n_tasks: int = 0,
        device: str = "auto",
        resources: Mapping[str, float] | None = None,
        files: Iterable[str] = (),
    ) -> None:
        """Says what to use; nothing is started yet.

        Args:
            address: of the cluster, "auto" for the one that this machine is a part of. None: that of the environment
                variable ``RAY_ADDRESS``, else a Ray of our own on this machine. A Ray that this process is already
                connected to is used in any case.
            n_tasks: most jobs at once, 0 for what the cluster holds.
            device: where the model runs.
            resources: what one worker that runs the model asks of Ray, as ``{"GPU": 0.5}``. None: one accelerator
                where ``device`` and the cluster have it, else one processor.
            files: that jobs will read besides inputs and output.
        """
        self._address = address
        self._n_tasks = n_tasks
        self._device = device
        self._resources = dict(resources) if resources else None
        self._files = tuple(files)
        self._home = Home.here()
        self._connection: Connection | None = None

    def check_folder(self, folder: Path | None, inputs: Iterable[str] = ()) -> None:
        """Whether all nodes can work on what is in ``folder`` (None: it is nobody's disk), and read the inputs.

        Raises:
            CleanseError: a node cannot; the message names it and says what to do.
        """
        local = [name for name in (*self._files, *inputs) if not is_remote(name)]
        ray_nodes.check(self._home, folder, local, self._connect().runtime_env)

    def run(self, jobs: Sequence[Job], report: Report) -> Iterator[Any]:
        """The results in the order of the jobs.

        Raises:
            CleanseError: a job failed, and the message names it; or the cluster did.
        """
        for measures, some in groupby(jobs, key=lambda job: job.measures):
            yield from self._stream(list(some), report, measures=measures)

    def _stream(self, jobs: Sequence[Job], report: Report, *, measures: bool) -> Iterator[Any]:
        finished: dict[int, Any] = {}
        following = 0
        with _quiet():
            answers = iter(
                self._dataset(jobs, measures=measures).iter_batches(
                    batch_size=None, batch_format="pyarrow", prefetch_batches=0
                )
            )
            try:
                for batch in answers:
                    for index, kind, content, sums in answers_of(batch):
                        report(*sums)
                        if kind == "failed":
                            raise content.as_error(jobs[index].label)
                        finished[index] = content
                    while following in finished:
                        yield finished.pop(following)
                        following += 1
            except (ray.exceptions.RayError, ExecutionTimeoutError) as error:
                raise _lost(error, jobs[following].label) from error
            finally:
                answers.close()  # ends what still runs: nothing may write once the caller has the error

    def _dataset(self, jobs: Sequence[Job], *, measures: bool) -> Any:
        rows = [row_of(index, job.function, job.argument) for index, job in enumerate(jobs)]
        options: dict[str, Any] = {"batch_size": 1, "batch_format": "pyarrow", "zero_copy_batch": True}
        if (environment := self._connect().runtime_env) is not None:
            options["runtime_env"] = environment
        with DataContext.current(_context()):
            given = ray.data.from_items(rows, override_num_blocks=len(rows))
            if not measures:
                most = min(self._n_tasks, len(jobs)) or None
                tasks = TaskPoolStrategy(size=most)
                return given.map_batches(run_rows, fn_args=[self._home], compute=tasks, num_cpus=1, **options)
            need = self._need()
            n = min(self._n_actors(need), len(jobs))
            # One job at a time: a second would wait for its actor at the end, when others have nothing left to do.
            pool = ActorPoolStrategy(min_size=1, max_size=n, initial_size=n, max_tasks_in_flight_per_actor=1)
            return given.map_batches(
                Measurer, fn_constructor_args=[self._home], compute=pool, **_remote(need), **options
            )

    def _need(self) -> dict[str, float]:
        """What a worker that runs the model asks for."""
        if self._resources is not None:
            return self._resources
        there = ray.cluster_resources()
        kinds = ("GPU", "NPU") if self._device == "auto" else (_ACCELERATORS.get(self._device.partition(":")[0]),)
        found = next((kind for kind in kinds if kind and there.get(kind, 0) >= 1), None)
        return {found: 1, "CPU": 1} if found else {"CPU": 1}

    def _n_actors(self, need: Mapping[str, float]) -> int:
        there = ray_nodes.fitting(need)
        if not there and not self._n_tasks:
            asked = ", ".join(f"{name}={amount:g}" for name, amount in need.items())
            raise CleanseError(
                f"no node of the cluster offers {asked} for a worker that runs the model: ask for less with "
                "--resources, or give --workers N where nodes come on demand"
            )
        return min(there or self._n_tasks, self._n_tasks or there)

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._address, self._n_tasks)
        return self._connection

    def close(self) -> None:
        """Gives up the connection, if it was made here; a cluster that was there before stays."""
        if self._connection is not None and self._connection.ours:
            ray.shutdown()
        self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _context() -> DataContext:
    """The caller's settings of Ray Data, and what must be so for us. Only datasets made under it see them."""
    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.max_errored_blocks = 0
    context.execution_options.preserve_order = False  # a slow job would hold back the results of all behind it
    context.execution_no_progress_timeout_s = _LONGEST_SECONDS
    return context


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps Ray Data's remarks off the terminal; its log files have them."""
    shown = [h for h in logging.getLogger("ray.data").handlers if isinstance(h, logging.StreamHandler)]
    before = [handler.level for handler in shown]
    for handler in shown:
        handler.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for handler, level in zip(shown, before, strict=True):
            handler.setLevel(level)


def _remote(need: Mapping[str, float]) -> dict[str, Any]:
    """Resources in the words of Ray's options."""
    own = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    named = {own[name]: amount for name, amount in need.items() if name in own}
    return {"num_cpus": 0, **named, "resources": {n: a for n, a in need.items() if n not in own}}


def _lost(error: Exception, label: str) -> CleanseError:
    """What to say of an error that is Ray's own: no job's answer came with it."""
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        reason = "a node ran out of memory: use fewer --workers or a smaller --max-record-bytes"
    elif isinstance(error, ExecutionTimeoutError):
        reason = f"no result for {_LONGEST_SECONDS / 3600:.0f} hours: see what the cluster does with ray status"
    else:
        cause = getattr(error, "cause", None) or error  # of what a task could not do; its own text is a traceback
        reason = f"the cluster failed ({type(cause).__name__}: {' '.join(str(cause).split())})"
    return CleanseError(f"{label}, or a piece behind it: {reason}. The same command continues where it stopped")
