"""The corpus statistics as a stage between the passes of a scan: collect per unit, merge, tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from cleanse.atomic import committed, read_json, write_json
from cleanse.corpus import telling
from cleanse.corpus.collect import Collector
from cleanse.corpus.evidence import CorpusEvidence, merge
from cleanse.corpus.hearing import Hearing
from cleanse.corpus.telling import Dedup
from cleanse.engines.job import Job, Report
from cleanse.evidence import Between
from cleanse.formats import Format, view
from cleanse.rulepacks import RuleSet
from cleanse.sources import ReadOptions, open_shard
from cleanse.state import RunState, unit_path
from cleanse.units import Unit

FEATURES = "features"
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
    with committed(unit_path(task.folder, FEATURES, task.unit.index, ".arrow")) as temporary:
        collector.write(temporary)


class Witness(Protocol):
    """Someone who can be asked about phrases that counting could only list."""

    def hear(self, evidence: CorpusEvidence, between: Between) -> Mapping[int, Hearing]:
        """What it says, by place in ``evidence.triggers``."""
        ...


class CorpusStage:
    """Duplicates, floods and triggers, between the passes."""

    name = "corpus"

    def __init__(
        self, read: ReadOptions, rules: RuleSet, dedup: Dedup = Dedup.NOTE, witness: Witness | None = None
    ) -> None:
        self._read, self._rules, self._dedup, self._witness = read, rules, dedup, witness

    def gather(self, between: Between) -> None:
        """Commits findings for all units, OUT/triggers.parquet, and the stage's account for the summary."""
        state = between.state
        if (state.folder / ACCOUNT).exists():
            return
        self._collect(between)
        evidence = merge([state.path(FEATURES, unit.index, ".arrow") for unit in between.units])
        if self._witness is not None:
            evidence = evidence.with_hearings(self._witness.hear(evidence, between))
        sources = {shard.index: shard.source.name for shard in between.plan.shards}

        def name(shard: int, row: int) -> str:
            return f"{sources[shard]}:{row + between.corpus.offsets[shard]}"

        table = telling.triggers_table(evidence, name)
        with committed(state.out / TRIGGERS) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        tables = telling.findings(evidence, self._rules, sources.__getitem__, name, self._dedup)
        for unit, found in zip(between.units, tables, strict=True):
            with committed(state.path(self.name, unit.index, ".parquet")) as temporary:
                pq.write_table(found, temporary)
        write_json(state.folder / ACCOUNT, account(evidence, table))

    def _collect(self, between: Between) -> None:
        jobs = [
            Job(
                collect_unit,
                CollectTask(
                    unit,
                    tuple(between.formats[shard.source.index] for shard in unit.shards),
                    self._read,
                    between.state.folder,
                ),
                str(unit),
            )
            for unit in between.units
            if not between.state.path(FEATURES, unit.index, ".arrow").exists()
        ]
        for _ in between.engine.run(jobs, between.report):
            pass

    def account(self, state: RunState) -> dict[str, Any] | None:
        """What summary.json says about the stage; None before it has run."""
        path = state.folder / ACCOUNT
        return dict(read_json(path)) if path.exists() else None


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
