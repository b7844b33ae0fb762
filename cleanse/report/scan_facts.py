"""The account of a scan as the page tells it: counts, rules with their why, sources, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cleanse.atomic import read_json
from cleanse.errors import CleanseError
from cleanse.report.rows import Rows
from cleanse.rulepacks import PackError, Rule, load_packs
from cleanse.summary import FILE

_MOST_TRIGGERS = 60
_MOST_SOURCES = 400


@dataclass(frozen=True)
class ScanFacts:
    """One finished scan. Raises CleanseError where the folder holds none."""

    out: Path
    place: str | None = None  # what the page calls it, if not ``out``

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json."""
        try:
            return dict(read_json(self.out / FILE))
        except FileNotFoundError:
            raise CleanseError(
                f"{self.out} holds no finished scan: expected {FILE} in it. Run cleanse scan ... -o {self.out}"
            ) from None

    @cached_property
    def rows(self) -> Rows:
        """The records themselves."""
        return Rows(self.out, self.summary)

    @property
    def counts(self) -> dict[str, int]:
        """Records, but for ``findings``, ``bytes`` and ``blank_lines``."""
        return dict(self.summary["counts"])

    @property
    def n_suspects_kept(self) -> int:
        """Records with a suspicion that nothing confirmed: they are in clean/."""
        return max(0, self.counts["suspected"] - self.counts["quarantined"])

    @cached_property
    def reasons(self) -> dict[str, int]:
        """Quarantined records by their strongest reason."""
        return self.rows.strongest_reasons()

    @cached_property
    def known_rules(self) -> Mapping[str, Rule]:
        """The rules of the scan's packs by id; those of a pack that is gone are missing."""
        known: dict[str, Rule] = {}
        for pack in self.summary["configuration"].get("packs", ["default"]):
            try:
                known |= {rule.id: rule for rule in load_packs((pack,)).rules}
            except PackError:
                continue
        return known

    @cached_property
    def rules(self) -> list[dict[str, Any]]:
        """Every rule that found something: counts, what it says, why that hurts."""
        told = []
        for name, tally in self.summary["rules"].items():
            rule = self.known_rules.get(name)
            words = {"summary": rule.summary if rule else "", "why": rule.why if rule else ""}
            told.append({"id": name, **tally, **words, "family": name.partition(".")[0]})
        return told

    @property
    def sources(self) -> list[dict[str, Any]]:
        """What was read, those with most quarantined records first."""
        ranked = sorted(self.summary["sources"], key=lambda s: (-s["quarantined"], s["name"]))
        return ranked[:_MOST_SOURCES]

    @property
    def probe(self) -> dict[str, Any] | None:
        """The probe's account; None where there was none."""
        found = self.summary["evidence"].get("probe")
        return dict(found) if found else None

    @cached_property
    def triggers(self) -> list[dict[str, Any]]:
        """The strongest candidates for a planted trigger."""
        path = self.out / "triggers.parquet"
        return list(pq.read_table(path).slice(0, _MOST_TRIGGERS).to_pylist()) if path.exists() else []

    @property
    def findings_path(self) -> Path:
        """Every finding."""
        return self.out / "findings.parquet"

    @property
    def probe_path(self) -> Path:
        """Every measured record, where the probe ran."""
        return self.out / "probe.parquet"
