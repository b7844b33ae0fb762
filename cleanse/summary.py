"""The account of a scan: summary.json, and the same as a typed result."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanse import __version__, inputs, splitting
from cleanse.atomic import read_json, write_json
from cleanse.errors import CleanseError
from cleanse.facts import Corpus
from cleanse.formats import Format
from cleanse.records import Action
from cleanse.sources import Plan
from cleanse.splitting import RuleTally, SplitFacts, Tally
from cleanse.state import RunState, carry_on
from cleanse.storage.filesystem import joined, without_secrets
from cleanse.storage.remote import Remote, kept_copy
from cleanse.units import Unit

if TYPE_CHECKING:
    import datasets
    import polars as pl
    import pyarrow as pa

FILE = "summary.json"
_LIBRARIES = ("datasets", "ftfy", "numba", "numpy", "orjson", "pyarrow", "regex")


@dataclass(frozen=True)
class ScanResult:
    """What a scan found and where it put it. Counts are records unless they say otherwise."""

    out: Path
    read: int
    clean: int
    quarantined: int
    suspected: int  # with a suspicion or a proof, wherever they ended
    repaired: int  # in clean/ with a repair rule's finding
    released: int  # held by rules, and in clean/ by a person's decision
    n_findings: int
    rules: Mapping[str, RuleTally]
    summary: Mapping[str, Any]  # the content of summary.json
    already_done: bool = False  # this call found a finished run of the same command
    url: str | None = None  # where the output is, if not at ``out``

    @property
    def place(self) -> str:
        """Where the output is: a folder, or a URL."""
        return str(self.out) if self.url is None else without_secrets(self.url)

    def load_clean(self) -> datasets.Dataset:
        """The clean records, memory-mapped."""
        return self._load("clean")

    def load_quarantine(self) -> datasets.Dataset:
        """The quarantined records with their ``cleanse_*`` columns, memory-mapped."""
        return self._load("quarantine")

    def load_findings(self) -> pa.Table:
        """All findings, by source and row (``cleanse.records.FINDINGS_SCHEMA``)."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - not needed to look at the counts

        return pq.read_table(self._file("findings.parquet"))

    def findings(self) -> pl.DataFrame:
        """All findings as a polars frame, by source and row; ``.to_pandas()`` makes it one of pandas."""
        return self._frame("findings.parquet", "the scan did not finish, or it was removed")

    def probe(self) -> pl.DataFrame:
        """What the probe measured, one row per replayed record: loss (nats per token), gradient norm, p-value, ...

        Raises CleanseError where the scan had no probe, or nothing was suspect.
        """
        return self._frame("probe.parquet", "this scan had no probe, or no record was suspect")

    def triggers(self) -> pl.DataFrame:
        """Candidates for planted triggers, ranked. Raises CleanseError where the scan did not look for them."""
        return self._frame("triggers.parquet", "this scan did not look across records (--no-corpus)")

    def _file(self, name: str) -> Path:
        """A file of the output, on this machine's disk."""
        path = self.out / name
        return path if self.url is None else Remote(self.url, self.out).pull(path)

    def _frame(self, name: str, absent: str) -> pl.DataFrame:
        import polars as pl  # noqa: PLC0415 - only where frames are asked for

        try:
            return pl.read_parquet(self._file(name))
        except FileNotFoundError:
            raise CleanseError(f"there is no {self.place}/{name}: {absent}") from None

    def _load(self, name: str) -> datasets.Dataset:
        import datasets  # noqa: PLC0415 - slow to import, and only needed here

        folder = self.out / name if self.url is None else kept_copy(joined(self.url, name))
        return datasets.load_from_disk(str(folder))


def summarise(
    state: RunState,
    plan: Plan,
    units: Sequence[Unit],
    formats: Sequence[Format | None],
    corpus: Corpus,
    *,
    actions: Mapping[str, str],
    seconds: Mapping[str, float],
    evidence: Mapping[str, Mapping[str, Any] | None],
) -> ScanResult:
    """Adds up what the units committed, checks that no record is missing, writes summary.json, ends the run.

    Raises CleanseError when the records read in the two passes, or the two sides of the split, do not agree.
    """
    sources: dict[int, Tally] = {source.index: Tally() for source in plan.sources}
    rules: dict[str, RuleTally] = {}
    for path in state.files.each(state.path(splitting.STAGE, unit.index, ".json") for unit in units):
        facts = SplitFacts.from_json(read_json(path))
        for index, tally in facts.sources.items():
            _add(sources[index], tally)
        for rule, found in facts.rules.items():
            _add(rules.setdefault(rule, RuleTally()), found)
    digests = state.files.each(state.path(inputs.STAGE, source.index, ".json") for source in plan.sources)
    total = Tally()
    for tally in sources.values():
        _add(total, tally)
    if not total.read == total.clean + total.quarantined == corpus.n_read:
        raise CleanseError(
            f"{corpus.n_read} records were read first and {total.read} again, {total.clean} are clean and "
            f"{total.quarantined} quarantined: these must agree. Did an input change during the scan?"
        )
    n_findings = sum(tally.findings for tally in rules.values())
    summary = {
        "counts": {**vars(total), "blank_lines": corpus.n_blank, "bytes": corpus.n_bytes, "findings": n_findings},
        "rules": ranked(
            {rule: {"action": actions.get(rule, Action.REJECT.value), **vars(tally)} for rule, tally in rules.items()}
        ),
        "sources": [
            {
                "name": source.name,
                "bytes": source.n_bytes,
                "sha256": read_json(digest),
                "kind": source.kind,
                "compression": source.compression,
                "format": fmt.describe() if fmt else None,
                **vars(sources[source.index]),
            }
            for source, fmt, digest in zip(plan.sources, formats, digests, strict=True)
        ],
        "distributions": corpus.distributions,
        "evidence": dict(evidence),
        "seconds": dict(seconds),
        "versions": {"cleanse": __version__, "python": platform.python_version(), **_versions()},
        "configuration": state.identity,
    }
    write_json(state.out / FILE, summary)
    state.files.send(state.out / FILE)
    state.finish()
    return load_result(state.out, url=state.url)


def ranked(rules: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Accounts of rules: those that hold most first, then those that found most."""
    return dict(sorted(rules.items(), key=lambda item: (-item[1]["quarantined"], -item[1]["findings"], item[0])))


def load_result(out: Path, *, already_done: bool = False, url: str | None = None) -> ScanResult:
    """The result that lies in an output directory.

    A release that was interrupted after it was decided is carried to its end.

    Raises CleanseError when there is none, or the scan that writes it has not ended.
    """
    carry_on(out)
    try:
        summary = read_json(out / FILE)
    except FileNotFoundError:
        raise CleanseError(
            f"{out} holds no finished scan: expected {FILE} in it. Run cleanse scan ... -o {out}"
        ) from None
    counts = summary["counts"]
    return ScanResult(
        out=out,
        read=counts["read"],
        clean=counts["clean"],
        quarantined=counts["quarantined"],
        suspected=counts["suspected"],
        repaired=counts["repaired"],
        released=counts["released"],
        n_findings=counts["findings"],
        rules={rule: RuleTally(**_counts(tally)) for rule, tally in summary["rules"].items()},
        summary=summary,
        already_done=already_done,
        url=url,
    )


def _counts(tally: Mapping[str, Any]) -> dict[str, int]:
    return {name: count for name, count in tally.items() if name != "action"}


def _add(total: Tally | RuleTally, more: Tally | RuleTally) -> None:
    for name, count in vars(more).items():
        setattr(total, name, getattr(total, name) + count)


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found
