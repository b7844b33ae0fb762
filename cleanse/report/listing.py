"""Every record with a finding, filtered and paged: what the review server sends."""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cleanse.formats.leaves import text_leaves
from cleanse.records import Action
from cleanse.report.evidence import findings_of, probe_of
from cleanse.report.record_view import view
from cleanse.report.rows import ADDED, Key
from cleanse.report.scan_facts import ScanFacts
from cleanse.reviewing.releasing import EVIDENCE as RELEASED

Indices = NDArray[np.int64]
_BATCH = 1 << 16
_STATES = {"held": 4, "released": 3, "suspect": 2, "repaired": 1, "noted": 0}
_SEVERITIES = {action.value: min(action.severity, _STATES["suspect"]) for action in Action}


class Filter(NamedTuple):
    """What the reviewer asked for; empty fields ask for nothing."""

    id: str = ""
    q: str = ""
    state: str = "held"
    rule: str = ""
    source: str = ""
    decision: str = ""


class Listing:
    """An index of the records with findings: some 40 bytes per finding, whatever the texts."""

    def __init__(self, facts: ScanFacts) -> None:
        self._facts = facts
        self._sources: dict[str, int] = {}
        self._rules: dict[str, int] = {}
        parts = list(self._read())
        numbers = np.concatenate([p[0] for p in parts]) if parts else np.zeros(0, np.int64)
        sources = np.concatenate([p[1] for p in parts]) if parts else np.zeros(0, np.int64)
        self._rule_of = np.concatenate([p[2] for p in parts]) if parts else np.zeros(0, np.int64)
        severity = np.concatenate([p[3] for p in parts]) if parts else np.zeros(0, np.int64)
        order = {source["name"]: i for i, source in enumerate(facts.summary["sources"])}
        place = np.array([order.get(name, len(order)) for name in self._sources], np.int64)
        pairs = np.stack([place[sources] if len(place) else sources, numbers, sources], axis=1)
        unique, self._record_of = np.unique(pairs, axis=0, return_inverse=True)
        self._record_of = self._record_of.reshape(-1)
        self._row, self._source = unique[:, 1], unique[:, 2]
        self._names = list(self._sources)
        worst = np.zeros(len(unique), np.int64)
        np.maximum.at(worst, self._record_of, severity)
        held = np.zeros(len(unique), np.bool_)
        for name, code in self._sources.items():
            mine = self._source == code
            held[mine] = facts.rows.is_held(name, self._row[mine])
        self._state = np.where(held, _STATES["held"], worst)

    def _read(self) -> Any:
        with pq.ParquetFile(self._facts.findings_path) as file:
            for batch in file.iter_batches(_BATCH, columns=["source", "row", "rule", "action"]):
                numbers = batch.column("row").to_numpy()
                actions = batch.column("action").to_pylist()
                severity = np.fromiter((_SEVERITIES[a] for a in actions), np.int64, len(actions))
                severity[np.asarray(pc.equal(batch.column("rule"), RELEASED))] = _STATES["released"]
                about_records = numbers >= 0
                columns = (
                    numbers,
                    _coded(batch.column("source"), self._sources),
                    _coded(batch.column("rule"), self._rules),
                    severity,
                )
                yield tuple(column[about_records] for column in columns)

    def __len__(self) -> int:
        return len(self._row)

    def page(
        self, wanted: Filter, decided: dict[str, str], offset: int, limit: int
    ) -> tuple[int, list[dict[str, Any]]]:
        """How many records fit, and some of them as the page draws them.

        Args:
            wanted: the filter.
            decided: decision by record id.
            offset: the first one wanted.
            limit: the most that are wanted.
        """
        if wanted.id:
            keys = [self._parsed(wanted.id)]
            total = 1 if keys[0] is not None else 0
            shown = [key for key in keys if key is not None][:limit] if offset == 0 else []
        else:
            found = self._found(wanted._replace(decision=""))
            if wanted.decision:
                found = found[[self._fits(int(i), wanted.decision, decided) for i in found]]
            total = len(found)
            shown = [self._key(int(i)) for i in found[offset : offset + limit]]
        findings = findings_of(self._facts.findings_path, shown)
        probe = probe_of(self._facts.probe_path, shown)
        return total, [view(self._facts.rows, key, findings[key], probe.get(key)) for key in shown]

    def _key(self, i: int) -> Key:
        return Key(self._names[int(self._source[i])], int(self._row[i]))

    def _parsed(self, name: str) -> Key | None:
        source, _, row = name.rpartition(":")
        known: Container[str] = {s["name"] for s in self._facts.summary["sources"]}
        return Key(source, int(row)) if row.isascii() and row.isdigit() and source in known else None

    def _fits(self, i: int, decision: str, decided: dict[str, str]) -> bool:
        return decided.get(self._key(i).id, "undecided") == decision

    @lru_cache(maxsize=16)  # noqa: B019 - one listing lives as long as its server
    def _found(self, wanted: Filter) -> Indices:
        """Indices of the records that fit, but for decisions, in the input's order."""
        fits = np.ones(len(self), np.bool_)
        if wanted.state in _STATES:
            fits &= self._state == _STATES[wanted.state]
        if wanted.source:
            fits &= self._source == self._sources.get(wanted.source, -1)
        if wanted.rule:
            with_rule = np.zeros(len(self), np.bool_)
            with_rule[self._record_of[self._rule_of == self._rules.get(wanted.rule, -1)]] = True
            fits &= with_rule
        if wanted.q:
            fits &= self._says(wanted.q, fits)
        return np.flatnonzero(fits)

    def _says(self, words: str, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of the records have the words in their findings, their id, or their text."""
        said = np.zeros(len(self), np.bool_)
        at = 0
        with pq.ParquetFile(self._facts.findings_path) as file:
            for batch in file.iter_batches(_BATCH, columns=["row", "rule", "message", "excerpt"]):
                hit = np.zeros(batch.num_rows, np.bool_)
                for name in ("rule", "message", "excerpt"):
                    hit |= _matches(batch.column(name), words)
                hit = hit[batch.column("row").to_numpy() >= 0]
                said[self._record_of[at : at + len(hit)][hit]] = True
                at += len(hit)
        for i in np.flatnonzero(among & ~said).tolist() if ":" in words or words.isdigit() else ():
            said[i] = words.lower() in self._key(i).id.lower()
        self._search_texts(words, among, said)
        return said

    def _search_texts(self, words: str, among: NDArray[np.bool_], said: NDArray[np.bool_]) -> None:
        for code, name in enumerate(self._names):
            for held in (True, False):
                mine = np.flatnonzero(
                    among & ~said & (self._source == code) & ((self._state == _STATES["held"]) == held)
                )
                if not len(mine):
                    continue
                for positions, batch in self._facts.rows.batches_of(name, self._row[mine], held=held):
                    said[mine[positions[_rows_with(batch, words)]]] = True


def _coded(column: pa.Array, known: dict[str, int]) -> Indices:
    """A column of names by the numbers that ``known`` gives them; new names get the next ones."""
    encoded = column.dictionary_encode()
    places = [known.setdefault(name, len(known)) for name in encoded.dictionary.to_pylist()]
    return np.array(places, np.int64)[encoded.indices.to_numpy()]


def _matches(column: pa.Array, words: str) -> NDArray[np.bool_]:
    found = pc.fill_null(pc.match_substring(column, words, ignore_case=True), fill_value=False)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def _rows_with(batch: pa.RecordBatch, words: str) -> Indices:
    """Rows of the batch in which any text has the words."""
    hit = np.zeros(batch.num_rows, np.bool_)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "cleanse_raw":
            hit |= _matches(column, words)
        elif name not in ADDED:
            leaves = text_leaves(column)
            hit[leaves.parent[_matches(leaves.texts, words)]] = True
    return np.flatnonzero(hit)
