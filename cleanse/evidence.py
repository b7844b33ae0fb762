"""The seam between the passes: stages that look at suspects, or across records, before anything is moved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cleanse.engines.job import Engine, Job, Report
from cleanse.facts import Corpus
from cleanse.formats import Format
from cleanse.sources import Plan
from cleanse.state import RunState
from cleanse.units import Unit


@dataclass(frozen=True)
class Between:
    """All that is known and open between the two passes."""

    plan: Plan
    formats: Sequence[Format | None]  # per source
    units: Sequence[Unit]
    corpus: Corpus
    state: RunState
    engine: Engine
    report: Report
    found: tuple[str, ...]  # stages whose findings are committed already, the rules' own first


def run_all(between: Between, jobs: Iterable[Job]) -> None:
    """Runs those of a stage's jobs whose last file an earlier process has not committed yet."""
    undone = [job for job in jobs if not between.state.files.has(job.writes[-1])]
    for _ in between.engine.run(undone, between.report):
        pass


class Evidence(Protocol):
    """A second witness: a probe that replays the suspects, a statistic over many records.

    For every unit it commits a table of ``cleanse.findings.COMMITTED_SCHEMA`` (shard, then the columns of a
    finding; rows counted from the start of their shard; sorted by shard and row) to
    ``state.path(name, unit.index, ".parquet")``. Pass 2 adds these findings to those of the rules, and its
    verdicts follow from both: evidence that agrees with a suspicion is a finding that rejects, evidence that
    does not agree is a note. What the rules and earlier witnesses found lies in the same form under the stages that
    ``Between.found`` names.
    """

    name: str

    def gather(self, between: Between) -> None:
        """Commits the evidence for all units; those already committed by an earlier process are kept."""
        ...

    def account(self, state: RunState) -> dict[str, Any] | None:
        """What summary.json says about the stage, JSON-serialisable; None before it has run."""
        ...
