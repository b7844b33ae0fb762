"""Moves reviewed records from quarantine back into clean/, in the input's order, all at once or not at all."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cleanse.atomic import read_json, write_json
from cleanse.errors import CleanseError
from cleanse.report import FILE as REPORT
from cleanse.report import write_report
from cleanse.reviewing import held, rewriting
from cleanse.reviewing.allow import Allowed, AllowList
from cleanse.reviewing.journal import Journal, finish
from cleanse.reviewing.releasing import EVIDENCE, released_finding
from cleanse.reviewing.selection import Chosen, Wanted, choose
from cleanse.rulepacks import load_packs
from cleanse.state import FOLDER, lock
from cleanse.summary import FILE as SUMMARY
from cleanse.summary import ScanResult, load_result, ranked
from cleanse.writers import arrow_to_parquet

ALLOW = "allow.json"


@dataclass(frozen=True)
class Released:
    """What a release did."""

    result: ScanResult  # the scan as it stands now
    ids: list[str]  # of the records that moved, in the input's order
    formless: int  # records that a rule or a confidence named and that could not be parsed: they stay
    allow: Path  # where the decisions are remembered


def release(out: Path, wanted: Wanted, allow: Path | None = None) -> Released:
    """Releases records of the finished scan in ``out``.

    They go to their places among the clean records, exactly as they were read (no repair); counts and findings
    follow, and the allow list (``OUT/allow.json`` by default) remembers content and reasons for later scans. A process
    that is killed has either changed nothing, or the next command on ``out`` carries the change to its end.

    Raises:
        UsageError: nothing is wanted, an id is unknown, or a record has no form.
        CleanseError: there is no finished scan, or another command is at work in ``out``.
    """
    load_result(out)
    folder = out / FOLDER
    if not (folder / held.FILE).exists():
        raise CleanseError(f"{out} was written by an earlier version, or lost its folder {FOLDER}: scan again")
    allow = allow or out / ALLOW
    descriptor = lock(folder / "lock", str(out))
    try:
        finish(out, folder)
        chosen, decided = _choose(out, wanted)
        if chosen.ids:
            _Change(out, wanted, chosen, decided, allow).carry_out()
    finally:
        os.close(descriptor)
    if not (out / REPORT).exists():
        write_report(out)
    return Released(load_result(out), chosen.ids, chosen.formless, allow)


def _choose(out: Path, wanted: Wanted) -> tuple[Chosen, AllowList]:
    contents = pq.read_table(out / FOLDER / held.FILE).column("sha256")
    rules = read_json(out / SUMMARY)["rules"]
    chosen = choose(
        rewriting.batches(out / "quarantine"),
        wanted,
        formed=np.asarray(contents.is_valid()),
        actions={rule: tally["action"] for rule, tally in rules.items()},
        probe=out / "probe.parquet",
        released_before=_released_before(out),
    )
    hashes = contents.take(pa.array(chosen.places)).to_pylist()
    decisions = [
        Allowed(sha256, tuple(sorted(reasons)), id_, wanted.note_of(id_))
        for sha256, reasons, id_ in zip(hashes, chosen.reasons, chosen.ids, strict=True)
    ]
    return chosen, AllowList().with_more(decisions)


def _released_before(out: Path) -> list[str]:
    found = pq.read_table(
        out / "findings.parquet", columns=["source", "row"], filters=[("rule", "=", EVIDENCE)]
    ).to_pylist()
    return [f"{place['source']}:{place['row']}" for place in found]


@dataclass(frozen=True)
class _Change:
    """One release: every file of the output that it touches."""

    out: Path
    wanted: Wanted
    chosen: Chosen
    decided: AllowList
    allow: Path

    def carry_out(self) -> None:
        """Stages, commits, and puts everything in its place."""
        journal = Journal(self.out / FOLDER)
        names = [*self._tables(journal), *self._accounts(journal)]
        journal.commit(names, [REPORT], self.allow, self.decided)
        finish(self.out, self.out / FOLDER)

    def _tables(self, journal: Journal) -> list[str]:
        clean, quarantine, places = self.out / "clean", self.out / "quarantine", self.chosen.places
        known = pq.read_table(self.out / FOLDER / held.FILE)
        before = known.column("before").take(pa.array(places)).to_numpy()
        schema = rewriting.schema_of(clean)
        mark = hashlib.sha256("\n".join(self.chosen.ids).encode()).hexdigest()

        def added() -> Iterator[pa.RecordBatch]:
            return rewriting.clean_records(quarantine, places, schema)

        rewriting.rewrite_clean(clean, journal.staged("clean"), before, added(), mark)
        rewriting.rewrite_quarantine(quarantine, journal.staged("quarantine"), places, mark)
        rules = load_packs(("review",))  # those of the scan itself may be gone by now
        notes = [
            released_finding(rules, source, row, reasons, self.wanted.note_of(id_))
            for source, row, reasons, id_ in zip(
                self.chosen.sources, self.chosen.rows, self.chosen.reasons, self.chosen.ids, strict=True
            )
        ]
        rewriting.rewrite_findings(self.out / "findings.parquet", journal.staged("findings.parquet"), notes)
        names = ["clean", "quarantine", "findings.parquet"]
        if (self.out / "clean.jsonl").exists():
            rewriting.rewrite_lines(self.out / "clean.jsonl", journal.staged("clean.jsonl"), before, added())
            names.append("clean.jsonl")
        if (self.out / "clean.parquet").exists():
            arrow_to_parquet(sorted(journal.staged("clean").glob("data-*.arrow")), journal.staged("clean.parquet"))
            names.append("clean.parquet")
        name = f"{FOLDER}/{held.FILE}"
        pq.write_table(self._still_held(known), journal.staged(name), compression="zstd")
        return [*names, name]

    def _still_held(self, known: pa.Table) -> pa.Table:
        """What is known of the records that stay in quarantine: released ones now stand before them."""
        stays = np.ones(known.num_rows, np.bool_)
        stays[self.chosen.places] = False
        passed = np.cumsum(~stays)
        moved = pc.add(known.column("before"), pa.array(passed)).cast(pa.int64())
        return known.set_column(0, held.SCHEMA.field("before"), moved).filter(pa.array(stays))

    def _accounts(self, journal: Journal) -> list[str]:
        run = read_json(self.out / FOLDER / "run.json")
        summary: dict[str, Any] = read_json(self.out / SUMMARY)
        n = len(self.chosen.ids)
        _move(summary["counts"], n)
        summary["counts"]["findings"] += n
        per_source = Counter(self.chosen.sources)
        for source in summary["sources"]:
            _move(source, per_source.pop(source["name"], 0))
        rules = summary["rules"]
        for rule, count in Counter(rule for reasons in self.chosen.reasons for rule in reasons).items():
            rules[rule]["quarantined"] -= count
        note = rules.setdefault(EVIDENCE, {"action": "note", "findings": 0, "records": 0, "quarantined": 0})
        note["findings"] += n
        note["records"] += n
        summary["rules"] = ranked(rules)
        names = [SUMMARY]
        known = AllowList.read([self.allow]) if self.allow.exists() else None
        if known is not None and known.digest == run["identity"].get("allow"):
            # The scan was given this very list: the same command is to find its result again.
            run["identity"]["allow"] = known.with_more(self.decided.by_content.values()).digest
            summary["configuration"] = run["identity"]
            write_json(journal.staged(f"{FOLDER}/run.json"), run)
            names.append(f"{FOLDER}/run.json")
        write_json(journal.staged(SUMMARY), summary)
        return names


def _move(tally: dict[str, Any], n: int) -> None:
    tally["clean"] += n
    tally["quarantined"] -= n
    tally["released"] = tally.get("released", 0) + n
