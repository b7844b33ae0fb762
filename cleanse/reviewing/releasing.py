"""Records that a rule holds and a person released: they stay, as they are, and a note says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse import findings
from cleanse.formats import Format, view
from cleanse.records import Finding
from cleanse.reviewing.allow import AllowList, content_digests
from cleanse.rulepacks import RuleSet
from cleanse.safe_text import escape
from cleanse.verdicts import Rows, Verdicts

EVIDENCE = "review.released"


@dataclass(frozen=True)
class Reviewed:
    """Findings and verdicts after the allow list was heard."""

    findings: pa.Table
    verdicts: Verdicts
    released: Rows  # ascending
    digests: list[str | None]  # (held,) content of each record that is still held; None: it has no form


def hear(
    allow: AllowList,
    batch: pa.RecordBatch,
    rows: Rows,
    *,
    fmt: Format | None,
    found: pa.Table,
    verdicts: Verdicts,
    rules: RuleSet,
    source: str,
) -> Reviewed:
    """Releases the held records that the allow list covers.

    Args:
        allow: the decisions.
        batch: the records that have a form.
        rows: (batch.num_rows,) their numbers, ascending.
        fmt: what the columns mean; None where no record could be parsed.
        found: findings of ``FINDINGS_SCHEMA``, by row.
        verdicts: what follows from them.
        rules: for the note that says that a record was released.
        source: named in that note.
    """
    held = verdicts.held
    if len(held) == 0:
        return Reviewed(found, verdicts, held, [])
    digests = held_digests(batch, rows, fmt, held)
    decisions = [
        None if sha256 is None else allow.covers(sha256, reasons)
        for sha256, reasons in zip(digests, verdicts.reasons, strict=True)
    ]
    free = np.fromiter((decision is not None for decision in decisions), np.bool_, len(decisions))
    if not free.any():
        return Reviewed(found, verdicts, held[:0], digests)
    notes = [
        released_finding(rules, source, int(row), reasons, decision.note)
        for row, reasons, decision in zip(held, verdicts.reasons, decisions, strict=True)
        if decision is not None
    ]
    kept = [place for place, is_free in enumerate(free) if not is_free]
    return Reviewed(
        findings.merged([findings.table(notes), found]),
        replace(verdicts, held=held[~free], reasons=[verdicts.reasons[place] for place in kept]),
        held[free],
        [digests[place] for place in kept],
    )


def held_digests(batch: pa.RecordBatch, rows: Rows, fmt: Format | None, held: Rows) -> list[str | None]:
    """The content of each held record, (held,); None for those that have no form."""
    formed: NDArray[np.bool_] = np.isin(held, rows)
    digests: list[str | None] = [None] * len(held)
    if fmt is None or not formed.any():
        return digests
    positions = np.searchsorted(rows, held[formed])
    contents = content_digests(view(fmt, batch.take(pa.array(positions))).texts)
    for place, sha256 in zip(np.flatnonzero(formed).tolist(), contents, strict=True):
        digests[place] = sha256
    return digests


def released_finding(rules: RuleSet, source: str, row: int, reasons: Sequence[str], note: str) -> Finding:
    """The note that a record was released, for findings.parquet."""
    rule = rules.evidence_rule(EVIDENCE)
    said = f": {escape(note)}" if note else ""
    message = f"{rule.summary}, although {', '.join(reasons)} spoke against it{said}"
    return Finding(source, row, rule.id, rule.action.value, "", None, None, None, None, message, "")
