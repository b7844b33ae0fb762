"""Pass 2: reads a unit again, with the types of the whole input, and parts clean from quarantine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cleanse import findings, quarantine
from cleanse.atomic import read_json, write_json
from cleanse.blocks import RecordBlock
from cleanse.engines.job import Job, Report
from cleanse.findings import Cursor
from cleanse.formats import Format
from cleanse.inspection import event_findings, rules_of
from cleanse.mending import mend, wanted
from cleanse.parts import PartWriters
from cleanse.records import EventKind, ReadEvent
from cleanse.reviewing import held as held_records
from cleanse.reviewing.allow import AllowList
from cleanse.reviewing.releasing import Reviewed, hear
from cleanse.rulepacks import RuleSet
from cleanse.sources import ReadOptions, Shard, Types, open_shard
from cleanse.state import unit_path
from cleanse.units import Unit
from cleanse.verdicts import Policy, Rows, Verdicts, decide

STAGE = "split"
ALLOW = "allow.json"
TYPES = "types.json"


@dataclass(frozen=True)
class SplitTask:
    """All that a worker needs to split one unit."""

    unit: Unit
    offsets: tuple[int, ...]  # per shard of the unit: the number of its first record in its source
    file_events: tuple[tuple[ReadEvent, ...], ...]  # per shard, rows counted in the source
    formats: tuple[Format | None, ...]  # per shard
    evidence: tuple[str, ...]  # stages whose committed findings count, in this order
    policy: Policy
    emit: tuple[str, ...]
    packs: tuple[str, ...]
    rules_fingerprint: str
    read: ReadOptions
    folder: Path  # OUT/.cleanse

    @property
    def allow(self) -> Path:
        """The run's copy of the allow list."""
        return self.folder / ALLOW

    @property
    def types(self) -> Path:
        """JSON of the merged types."""
        return self.folder / TYPES

    @property
    def found(self) -> tuple[Path, ...]:
        """What the stages committed for the unit."""
        return tuple(unit_path(self.folder, stage, self.unit.index, ".parquet") for stage in self.evidence)


@dataclass
class Tally:
    """What became of the records of one source."""

    read: int = 0
    clean: int = 0
    quarantined: int = 0
    suspected: int = 0
    repaired: int = 0
    released: int = 0  # held by rules, and kept by a person's decision


@dataclass
class RuleTally:
    """What one rule found."""

    findings: int = 0
    records: int = 0
    quarantined: int = 0  # records in quarantine for which this rule is among the reasons


@dataclass
class SplitFacts:
    """Counts of one unit, committed as JSON when its parts are."""

    sources: dict[int, Tally] = field(default_factory=dict)  # by source index
    rules: dict[str, RuleTally] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)  # rows per part

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "sources": {str(index): vars(tally) for index, tally in self.sources.items()},
            "rules": {rule: vars(tally) for rule, tally in self.rules.items()},
            "emitted": self.emitted,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SplitFacts:
        """The counts that ``to_json`` gave."""
        return cls(
            {int(index): Tally(**tally) for index, tally in value["sources"].items()},
            {rule: RuleTally(**tally) for rule, tally in value["rules"].items()},
            value["emitted"],
        )


def splitting(task: SplitTask) -> Job:
    """The job of splitting one unit."""
    place = partial(unit_path, task.folder, STAGE, task.unit.index)
    writes = tuple(place(suffix) for suffix in (*PartWriters.suffixes(task.emit), ".json"))
    return Job(split_shard, task, str(task.unit), reads=(task.allow, task.types, *task.found), writes=writes)


def split_shard(task: SplitTask, report: Report) -> None:
    """Writes one unit's clean, quarantine and findings parts and then its counts; these say that all are there.

    Raises CleanseError when a rule pack is no longer what the main process loaded.
    """
    rules = rules_of(task.packs, task.rules_fingerprint)
    types = _types(task.types)
    allow = _allowed(task.allow)
    facts = SplitFacts()
    place = partial(unit_path, task.folder, STAGE, task.unit.index)
    with ExitStack() as stack:
        cursors = [Cursor(path) for path in task.found]
        for cursor in cursors:
            stack.callback(cursor.close)
        writers = stack.enter_context(PartWriters(place, types.schema(), task.emit))
        per_shard = zip(task.unit.shards, task.formats, task.offsets, task.file_events, strict=True)
        for shard, fmt, offset, events in per_shard:
            about_file = event_findings(rules, events, shard.source.name)
            rank = ranks(rules)
            splitter = _Splitter(task, rules, rank, shard, fmt, allow, offset, cursors, about_file, facts, writers)
            for block in open_shard(shard, task.read, types):
                splitter.split(block)
                report(block.n_bytes, block.batch.num_rows + len(block.strays), 0)
            splitter.finish()
        facts.emitted = writers.rows()
    write_json(unit_path(task.folder, STAGE, task.unit.index, ".json"), facts.to_json())


@lru_cache(maxsize=1)
def _types(path: Path) -> Types:
    return Types.from_json(read_json(path))


@lru_cache(maxsize=1)
def _allowed(path: Path) -> AllowList:
    return AllowList.read([path])


@dataclass
class _Splitter:
    """Splits one shard, block by block. All rows are those of the source."""

    task: SplitTask
    rules: RuleSet
    rank: Mapping[str, int]
    shard: Shard
    fmt: Format | None
    allow: AllowList
    offset: int
    cursors: list[Cursor]
    about_file: pa.Table
    facts: SplitFacts
    writers: PartWriters

    def split(self, block: RecordBlock) -> None:
        source = self.shard.source.name
        rows = block.rows + self.offset
        strays = np.fromiter((stray.row for stray in block.strays), np.int64, len(block.strays)) + self.offset
        last = max((int(r[-1]) for r in (rows, strays) if len(r)), default=-1)
        # A value is odd only beside the types of the whole input: pass 1 could not see these yet.
        mixed = [event for event in block.events if event.kind is EventKind.MIXED_TYPE]
        found = findings.merged([*self._known(last), event_findings(self.rules, mixed, source, self.offset)])
        reviewed = hear(
            self.allow,
            block.batch,
            rows,
            fmt=self.fmt,
            found=found,
            verdicts=decide(found, strays, self.task.policy, self.rank),
            rules=self.rules,
            source=source,
        )
        self._write(block, rows, reviewed)
        self._count(len(rows) + len(strays), reviewed)

    def finish(self) -> None:
        """Findings behind the last record: blank lines at the end, or a shard of nothing else."""
        rest = findings.merged(self._known(np.iinfo(np.int64).max - self.offset))
        if rest.num_rows:
            self.writers.findings(rest)
            self._count_rules(rest, Verdicts(np.zeros(0, np.int64), [], np.zeros(0, np.int64), np.zeros(0, np.int64)))

    def _known(self, last: int) -> list[pa.Table]:
        of_file = self.about_file.column("row").to_numpy() <= last
        known = [self.about_file.filter(pa.array(of_file))]
        self.about_file = self.about_file.filter(pa.array(~of_file))
        taken = (cursor.take(self.shard.index, last - self.offset) for cursor in self.cursors)
        return known + [findings.moved(found, self.offset) for found in taken]

    def _write(self, block: RecordBlock, rows: Rows, reviewed: Reviewed) -> None:
        source, found, verdicts = self.shard.source, reviewed.findings, reviewed.verdicts
        if found.num_rows:
            self.writers.findings(found)
        held = np.isin(rows, verdicts.held) if len(verdicts.held) else np.zeros(len(rows), np.bool_)
        if len(verdicts.held):
            away = block.batch.filter(pa.array(held))
            self.writers.quarantine(
                quarantine.build(
                    away, rows[held], block.strays, reasons=verdicts.reasons, source=source.name, offset=self.offset
                ),
                held_records.of_block(rows, verdicts.held, reviewed.digests, self.writers.rows()["clean"]),
            )
        asked = wanted(found, rows, verdicts.mended, lambda rule: self.rules.get(rule).repair is not None)
        mended = mend(block.batch, asked, self.rules.mend)
        self._tally().repaired += len(verdicts.mended)
        self.writers.clean(mended, ~held, block.raw if source.kind in {"jsonl", "json"} else None)

    def _tally(self) -> Tally:
        return self.facts.sources.setdefault(self.shard.source.index, Tally())

    def _count(self, n_records: int, reviewed: Reviewed) -> None:
        tally, verdicts = self._tally(), reviewed.verdicts
        tally.read += n_records
        tally.quarantined += len(verdicts.held)
        tally.clean += n_records - len(verdicts.held)
        tally.suspected += len(verdicts.suspected)
        tally.released += len(reviewed.released)
        self._count_rules(reviewed.findings, verdicts)

    def _count_rules(self, found: pa.Table, verdicts: Verdicts) -> None:
        if found.num_rows == 0:
            return
        per_rule = (
            found.select(["rule", "row"]).group_by("rule").aggregate([("row", "count"), ("row", "count_distinct")])
        )
        for counted in per_rule.to_pylist():
            tally = self.facts.rules.setdefault(counted["rule"], RuleTally())
            tally.findings += counted["row_count"]
            tally.records += counted["row_count_distinct"]
        for rule, n in Counter(rule for reasons in verdicts.reasons for rule in reasons).items():
            self.facts.rules.setdefault(rule, RuleTally()).quarantined += n


def ranks(rules: RuleSet) -> dict[str, int]:
    """Place of every rule among reasons: the strongest action first, then the pack's own order of strength."""
    ordered = sorted(rules.rules, key=lambda rule: (-rule.action.severity, -rule.strength, rule.id))
    return {rule.id: place for place, rule in enumerate(ordered)}
