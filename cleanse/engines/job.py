"""What every engine runs, and what it promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Report = Callable[[int, int, int], None]
"""Called by a running job with what was added since the last call: input bytes, records, records held back."""


@dataclass(frozen=True)
class Job:
    """One call of a module-level function, small enough to travel to another process."""

    function: Callable[[Any, Report], Any]
    argument: Any
    label: str  # names the piece of work in messages: "shard 3 of data.jsonl (bytes ...)"
    reads: tuple[Path, ...] = ()  # files in the output folder that it needs
    writes: tuple[Path, ...] = ()  # files in the output folder that it commits; the last one says that all are there
    measures: bool = False  # runs a model: on a cluster, work for those who hold an accelerator


class Engine(Protocol):
    """Runs jobs in any order, anywhere. One whose worker was lost may be begun again: it commits the same bytes."""

    def run(self, jobs: Sequence[Job], report: Report) -> Iterator[Any]:
        """The results in the order of the jobs. Raises CleanseError naming the job that failed."""
        ...
