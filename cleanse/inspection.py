"""Pass 1: every record meets every rule. What is found is committed per unit, with the facts pass 2 needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cleanse import findings
from cleanse.atomic import committed, write_json
from cleanse.blocks import RecordBlock
from cleanse.cured import without_cured
from cleanse.distributions import Distributions
from cleanse.engines.job import Job, Report
from cleanse.errors import CleanseError, UsageError
from cleanse.formats import Format, view
from cleanse.records import FINDINGS_SCHEMA, STRAY_EVENTS, Action, EventKind, Finding, ReadEvent
from cleanse.rulepacks import Rule, RuleSet, load_packs
from cleanse.sources import ReadOptions, open_shard
from cleanse.state import unit_path
from cleanse.units import Unit

if TYPE_CHECKING:
    from cleanse.trainer_view import TokenContext, TokenSource

SOURCE_EVENTS = frozenset(
    {
        EventKind.BOM,
        EventKind.UTF16,
        EventKind.BLANK_LINES,
        EventKind.LATE_COLUMN,
        EventKind.OFFSET_RISK,
        EventKind.EXPANSION,
        EventKind.READ_ERROR,
    }
)
"""Events about a file: they come once per shard and become one finding per source when all shards are known."""

STAGE = "inspect"


class Inspector:
    """Finds what the rules say about a block of records. Also used on its own, without a scan around it."""

    def __init__(
        self, rules: RuleSet, fmt: Format | None, tokens: TokenContext | None = None, *, repair: bool = True
    ) -> None:
        """``fmt`` may be None for a source in which no record could be parsed: then only strays are judged.

        Without ``tokens`` the rules that need a tokenizer do not apply. ``repair`` says that texts will be mended,
        so that what a repair ends is no suspicion.
        """
        self._rules = rules
        self._format = fmt
        self._tokens = tokens
        self._repair = repair
        self.distributions = Distributions()

    def inspect(self, block: RecordBlock, source: str) -> pa.Table:
        """Findings of ``FINDINGS_SCHEMA``, by row; rows are those of the block.

        Events about the file as a whole (``SOURCE_EVENTS``) are left to the caller.
        """
        events = [event for event in block.events if event.kind not in SOURCE_EVENTS]
        events += [stray.event for stray in block.strays]
        return findings.merged([self._inspect_texts(block, source), event_findings(self._rules, events, source)])

    def _inspect_texts(self, block: RecordBlock, source: str) -> pa.Table:
        if block.batch.num_rows == 0 or self._format is None:
            return FINDINGS_SCHEMA.empty_table()
        seen = view(self._format, block.batch)
        if self._tokens is not None:
            self._tokens.attach(seen.texts)
        hits = self._rules.evaluate(seen.texts)
        if self._repair:
            hits = without_cured(self._rules, hits, seen.texts, self._tokens)
        counted = self._tokens.of(seen.texts).tally.tokens if self._tokens is not None and len(seen.texts) else None
        self.distributions.add(seen.texts, counted)
        return findings.table(
            [
                Finding(
                    source,
                    int(block.rows[found.record]),
                    found.rule.id,
                    found.rule.action.value,
                    found.field,
                    found.start,
                    found.end,
                    found.value,
                    found.limit,
                    found.message,
                    found.excerpt,
                )
                for found in self._rules.explain(hits, seen)
            ]
        )


def event_findings(rules: RuleSet, events: Iterable[ReadEvent], source: str, offset: int = 0) -> pa.Table:
    """What the packs make of things a reader noticed, ``offset`` added to their rows.

    An event that no loaded pack claims says nothing, except where the record could not be read at all: that is
    a reason of its own.
    """
    found = []
    for event in events:
        rule = _claiming(rules, event.kind)
        if rule is None and event.kind not in STRAY_EVENTS:
            continue
        found.append(
            Finding(
                source,
                event.row if event.row < 0 else event.row + offset,
                f"read.{event.kind.value}" if rule is None else rule.id,
                (Action.REJECT if rule is None else rule.action).value,
                event.field,
                event.start,
                event.end,
                event.value,
                None,
                event.detail,
                event.excerpt,
            )
        )
    return findings.table(found)


def _claiming(rules: RuleSet, kind: EventKind) -> Rule | None:
    try:
        return rules.event_rule(kind)
    except KeyError:
        return None


@dataclass(frozen=True)
class InspectTask:
    """All that a worker needs to inspect one unit."""

    unit: Unit
    formats: tuple[Format | None, ...]  # one per shard of the unit
    packs: tuple[str, ...]
    rules_fingerprint: str
    tokens: TokenSource | None
    repair: bool
    read: ReadOptions
    folder: Path  # OUT/.cleanse


def inspecting(task: InspectTask) -> Job:
    """The job of inspecting one unit."""
    writes = (unit_path(task.folder, STAGE, task.unit.index, suffix) for suffix in (".parquet", ".json"))
    return Job(inspect_shard, task, str(task.unit), writes=tuple(writes))


def inspect_shard(task: InspectTask, report: Report) -> None:
    """Reads one unit and commits its findings and then its facts; the facts say that both are there.

    Raises CleanseError when a rule pack is no longer what the main process loaded.
    """
    rules = rules_of(task.packs, task.rules_fingerprint)
    tokens = context_of(task.tokens) if task.tokens else None
    facts: list[dict[str, Any]] = []
    path = unit_path(task.folder, STAGE, task.unit.index, ".parquet")
    with committed(path) as temporary, pq.ParquetWriter(temporary, findings.COMMITTED_SCHEMA) as writer:
        for shard, fmt in zip(task.unit.shards, task.formats, strict=True):
            inspector = Inspector(rules, fmt, tokens, repair=task.repair)
            reader = open_shard(shard, task.read)
            of_file: list[ReadEvent] = []
            for block in reader:
                found = inspector.inspect(block, shard.source.name)
                if found.num_rows:
                    writer.write_table(findings.numbered(found, shard.index))
                of_file += [event for event in block.events if event.kind in SOURCE_EVENTS]
                report(block.n_bytes, block.batch.num_rows + len(block.strays), _n_rejected(found))
            facts.append(
                {
                    "facts": reader.facts.to_json(),
                    "events": [event_to_json(event) for event in of_file],
                    "distributions": inspector.distributions.to_json(),
                }
            )
    write_json(unit_path(task.folder, STAGE, task.unit.index, ".json"), facts)


@lru_cache(maxsize=2)
def rules_of(packs: tuple[str, ...], fingerprint: str) -> RuleSet:
    """The packs, loaded once per process. Raises CleanseError when they are not those of this run."""
    rules = load_packs(packs)
    if rules.fingerprint != fingerprint:
        raise CleanseError("a rule pack changed while the scan was running: start again with a new output folder")
    return rules


@lru_cache(maxsize=1)
def context_of(source: TokenSource) -> TokenContext:
    """The tokenizer and what it has learnt of the data, kept for the life of the process.

    Raises CleanseError where the tokenizer or its template cannot be loaded.
    """
    from cleanse.tokenizers_io import TokenizerError  # noqa: PLC0415 - only where a tokenizer is asked for
    from cleanse.trainer_view import TemplateRefusedError  # noqa: PLC0415

    try:
        return source.load()
    except (TokenizerError, TemplateRefusedError) as error:
        raise UsageError(f"tokenizer {source.tokenizer}: {error}") from error


def event_to_json(event: ReadEvent) -> list[Any]:
    """The fields of an event as JSON values; ``event_from_json`` gives an equal event back."""
    return [event.kind.value, event.row, event.detail, event.field, event.start, event.end, event.value, event.excerpt]


def event_from_json(values: Sequence[Any]) -> ReadEvent:
    """The event that ``event_to_json`` described."""
    kind, row, detail, field, start, end, value, excerpt = values
    return ReadEvent(EventKind(kind), row, detail, field, start, end, value, excerpt)


def _n_rejected(found: pa.Table) -> int:
    if found.num_rows == 0:
        return 0
    rejected = pc.equal(found.column("action"), Action.REJECT.value).to_numpy(zero_copy_only=False)
    return len(np.unique(found.column("row").to_numpy()[rejected]))
