"""What is known of the shards, put together: two halves that know nothing of each other, each one job.

They run beside each other, and on a cluster where there is room for them: never in the process that leads the scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from cleanse.corpus import evidence_file, questions
from cleanse.corpus.evidence import CorpusEvidence, find_answers, find_copies
from cleanse.corpus.shards import Shards
from cleanse.engines.job import Job, Report
from cleanse.state import unit_path

FEATURES = "features"
STAGE = "corpus-merge"


class Half(Enum):
    """Which half."""

    COPIES = 0
    ANSWERS = 1


@dataclass(frozen=True)
class MergeTask:
    """All that a worker needs to put one half of the evidence together."""

    half: Half
    n_units: int
    folder: Path  # OUT/.cleanse

    @property
    def label(self) -> str:
        """What it does, in words."""
        return "looking for copies" if self.half is Half.COPIES else "looking for triggers"


def features(folder: Path, n_units: int) -> tuple[Path, ...]:
    """The committed features of all units, in input order."""
    return tuple(unit_path(folder, FEATURES, unit, ".arrow") for unit in range(n_units))


def questions_path(folder: Path) -> Path:
    """Where the questions to a second witness lie."""
    return folder / STAGE / "questions.json"


def evidence_paths(folder: Path) -> tuple[Path, ...]:
    """All that the two halves commit."""
    return (*_writes(folder, Half.COPIES), *_writes(folder, Half.ANSWERS))


def merge_half(task: MergeTask, _report: Report) -> None:
    """Reads the features of all units and commits one half of what follows from them."""
    shards = Shards(features(task.folder, task.n_units))
    path = _arrays(task.folder, task.half)
    if task.half is Half.COPIES:
        evidence_file.write_copies(path, *find_copies(shards))
        return
    evidence = find_answers(shards)
    questions.write(questions_path(task.folder), list(questions.questions(evidence)))
    evidence_file.write_answers(path, evidence)


def merging(folder: Path, n_units: int) -> Iterator[Job]:
    """The two jobs. The larger one comes first."""
    for half in (Half.ANSWERS, Half.COPIES):
        task = MergeTask(half, n_units, folder)
        yield Job(merge_half, task, task.label, reads=features(folder, n_units), writes=_writes(folder, half))


def read_evidence(folder: Path, n_units: int) -> CorpusEvidence:
    """What the two halves committed, as one."""
    answers = evidence_file.read_answers(_arrays(folder, Half.ANSWERS), Shards(features(folder, n_units)))
    exact, near = evidence_file.read_copies(_arrays(folder, Half.COPIES))
    return replace(answers, exact=exact, near=near)


def _arrays(folder: Path, half: Half) -> Path:
    return unit_path(folder, STAGE, half.value, ".arrow")


def _writes(folder: Path, half: Half) -> tuple[Path, ...]:
    path = _arrays(folder, half)
    return (path,) if half is Half.COPIES else (questions_path(folder), path, path.with_suffix(".json"))
