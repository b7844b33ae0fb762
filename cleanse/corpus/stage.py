"""The corpus statistics as a stage between the passes of a scan: collect per unit, merge, tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from cleanse.atomic import committed, write_json
from cleanse.corpus import merging, questions, telling
from cleanse.corpus.collect import Collector
from cleanse.corpus.evidence import CorpusEvidence
from cleanse.corpus.hearing import Hearing
from cleanse.corpus.questions import Question
from cleanse.corpus.telling import Dedup
from cleanse.engines.job import Job, Report
from cleanse.evidence import Between, run_all
from cleanse.formats import Format, view
from cleanse.inspection import rules_of
from cleanse.sources import ReadOptions, open_shard
from cleanse.state import RunState, unit_path
from cleanse.units import Unit

STAGE = "corpus"
ACCOUNT = "corpus.json"
TRIGGERS = "triggers.parquet"


@dataclass(frozen=True)
class CollectTask:
    """All that a worker needs to gather the features of one unit."""

    unit: Unit
    formats: tuple[Format | None, ...]  # one per shard of the unit
    read: ReadOptions
    folder: Path


def collect_unit(task: CollectTask, report: Report) -> None:
    """Reads one unit and commits what the corpus statistics need of it."""
    collector = Collector()
    for shard, fmt in zip(task.unit.shards, task.formats, strict=True):
        for block in open_shard(shard, task.read):
            if fmt is not None and block.batch.num_rows:
                collector.collect(view(fmt, block.batch).texts, block.rows, shard.index)
            report(block.n_bytes, block.batch.num_rows + len(block.strays), 0)
    with committed(unit_path(task.folder, merging.FEATURES, task.unit.index, ".arrow")) as temporary:
        collector.write(temporary)


def collecting(task: CollectTask) -> Job:
    """The job of gathering the features of one unit."""
    path = unit_path(task.folder, merging.FEATURES, task.unit.index, ".arrow")
    return Job(collect_unit, task, str(task.unit), writes=(path,))


@dataclass(frozen=True)
class TellTask:
    """All that a worker needs to say what the evidence means for the records of every unit."""

    units: tuple[int, ...]
    sources: tuple[str, ...]  # per shard
    offsets: tuple[int, ...]  # per shard: the number of its first record in its source
    heard: tuple[tuple[int, Hearing], ...]  # trigger -> what a model says about it
    dedup: Dedup
    packs: tuple[str, ...]
    rules_fingerprint: str
    folder: Path


def tell(task: TellTask, _report: Report) -> None:
    """Commits findings for all units, OUT/triggers.parquet, and the stage's account, which says that all are there."""
    rules = rules_of(task.packs, task.rules_fingerprint)
    evidence = merging.read_evidence(task.folder, len(task.units)).with_hearings(dict(task.heard))

    def name(shard: int, row: int) -> str:
        return f"{task.sources[shard]}:{row + task.offsets[shard]}"

    table = telling.triggers_table(evidence, name)
    with committed(task.folder.parent / TRIGGERS) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    tables = telling.findings(evidence, rules, task.sources.__getitem__, name, task.dedup)
    for unit, found in zip(task.units, tables, strict=True):
        with committed(unit_path(task.folder, STAGE, unit, ".parquet")) as temporary:
            pq.write_table(found, temporary)
    write_json(task.folder / ACCOUNT, account(evidence, table))


class Witness(Protocol):
    """Someone who can be asked about phrases that counting could only list."""

    def hear(self, asked: Sequence[Question], between: Between) -> Mapping[int, Hearing]:
        """What it says, by place among the triggers."""
        ...


class CorpusStage:
    """Duplicates, floods and triggers, between the passes."""

    name = STAGE

    def __init__(
        self,
        read: ReadOptions,
        packs: tuple[str, ...],
        rules_fingerprint: str,
        dedup: Dedup = Dedup.NOTE,
        witness: Witness | None = None,
    ) -> None:
        self._read, self._packs, self._fingerprint = read, packs, rules_fingerprint
        self._dedup, self._witness = dedup, witness

    def gather(self, between: Between) -> None:
        """Commits findings for all units, OUT/triggers.parquet, and the stage's account for the summary."""
        state = between.state
        if state.files.has(state.folder / ACCOUNT):
            return
        run_all(between, (self._collecting(between, unit) for unit in between.units))
        run_all(between, merging.merging(state.folder, len(between.units)))
        heard: Mapping[int, Hearing] = {}
        if self._witness is not None:
            path = merging.questions_path(state.folder)
            state.files.fetch(path)
            heard = self._witness.hear(questions.read(path), between)
        run_all(between, [self._telling(between, heard)])

    def _collecting(self, between: Between, unit: Unit) -> Job:
        formats = tuple(between.formats[shard.source.index] for shard in unit.shards)
        return collecting(CollectTask(unit, formats, self._read, between.state.folder))

    def _telling(self, between: Between, heard: Mapping[int, Hearing]) -> Job:
        state, units = between.state, tuple(unit.index for unit in between.units)
        task = TellTask(
            units=units,
            sources=tuple(shard.source.name for shard in between.plan.shards),
            offsets=tuple(between.corpus.offsets),
            heard=tuple(heard.items()),
            dedup=self._dedup,
            packs=self._packs,
            rules_fingerprint=self._fingerprint,
            folder=state.folder,
        )
        reads = (*merging.features(state.folder, len(units)), *merging.evidence_paths(state.folder))
        findings = (state.path(STAGE, unit, ".parquet") for unit in units)
        writes = (state.out / TRIGGERS, *findings, state.folder / ACCOUNT)
        return Job(tell, task, "telling of copies and triggers", reads=reads, writes=writes)

    def account(self, state: RunState) -> dict[str, Any] | None:
        """What summary.json says about the stage; None before it has run."""
        return state.known(ACCOUNT)


def account(evidence: CorpusEvidence, table: pa.Table) -> dict[str, Any]:
    """Counts, and the ten strongest candidates."""
    shown = table.select(["ngram", "response", "support", "purity", "statistic", "verdict"]).slice(0, 10)
    return {
        "exchanges": evidence.shards.n_exchanges,
        "exact_copies": int(evidence.exact.later.sum()),
        "near_copies": int(evidence.near.later.sum()),
        "one_answer_records": len(evidence.one_answer.exchange),
        "triggers_planted": sum(t.planted for t in evidence.triggers),
        "triggers_listed": len(evidence.triggers),
        "triggers_read": sum(t.hearing is not None for t in evidence.triggers),
        "triggers": shown.to_pylist(),
    }
