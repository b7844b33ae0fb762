"""Which quarantined records are meant: by id, by rule, by the probe's confidence, or by a file of decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cleanse.errors import UsageError
from cleanse.records import Action

PROBE = "probe.spike"
_NAMED = 3  # ids that a message quotes


@dataclass(frozen=True)
class Wanted:
    """What to release: everything that one of these names."""

    ids: Sequence[str] = ()
    rules: Sequence[str] = ()  # records that these rules, and no others, hold
    all_below: float | None = None  # records that only the probe convicted, with a confidence (1 - p) below this
    notes: Mapping[str, str] = field(default_factory=dict)  # id -> what the reviewer wrote
    note: str = ""  # of all others
    decided: bool = False  # there was a file of decisions: that it releases nothing is no mistake

    def __post_init__(self) -> None:
        if not self.ids and not self.rules and self.all_below is None and not self.decided:
            raise UsageError("nothing to release: name records by id, rule, confidence, or a file of decisions")
        if self.all_below is not None and not 0 < self.all_below <= 1:
            raise UsageError(f"the confidence is {self.all_below}: expected a number above 0 and up to 1")

    def note_of(self, id_: str) -> str:
        """What is to be remembered beside a record."""
        return self.notes.get(id_) or self.note


@dataclass(frozen=True)
class Chosen:
    """Records of the quarantine to release, in its order."""

    places: NDArray[np.int64]  # (chosen,) rows of the quarantine, ascending
    ids: list[str]
    sources: list[str]
    rows: list[int]
    reasons: list[list[str]]
    formless: int  # records that a rule or a confidence named and that have no form: they stay


def choose(
    quarantine: Iterator[pa.RecordBatch],
    wanted: Wanted,
    *,
    formed: NDArray[np.bool_],
    actions: Mapping[str, str],
    probe: Path,
    released_before: Sequence[str],
) -> Chosen:
    """Finds the wanted records.

    Args:
        quarantine: batches with the ``cleanse_*`` columns.
        wanted: what to look for.
        formed: (records of the quarantine,) whether each has a form: those that could not be parsed have none.
        actions: rule id -> action, as the scan's summary has them.
        probe: OUT/probe.parquet, looked at where a confidence was given.
        released_before: ids that left the quarantine on an earlier review: asked for again, they are no mistake.

    Raises UsageError for an id that the quarantine does not have, or a record that has no form.
    """
    known_rules = {rule for rule in wanted.rules if rule in actions}
    if missing := sorted(set(wanted.rules) - known_rules):
        raise UsageError(f"no finding of this scan has the rule {', '.join(missing)}: see cleanse report")
    weak = _weak(probe, wanted.all_below)
    ids, left = set(wanted.ids), set(wanted.ids)
    chosen = Chosen(np.zeros(0, np.int64), [], [], [], [], 0)
    places: list[int] = []
    formless, start = 0, 0
    for batch in quarantine:
        names = ("cleanse_id", "cleanse_source", "cleanse_row", "cleanse_reasons")
        columns = [batch.column(name).to_pylist() for name in names]
        for i, (id_, source, row, reasons) in enumerate(zip(*columns, strict=True)):
            holding = {rule for rule in reasons if actions.get(rule) == Action.REJECT.value} or set(reasons)
            by_rule = bool(wanted.rules) and holding <= known_rules
            by_probe = holding == {PROBE} and (source, row) in weak
            if id_ not in ids and not by_rule and not by_probe:
                continue
            if not formed[start + i]:
                if id_ in ids:
                    raise UsageError(
                        f"{id_} could not be parsed and has no place in clean/: mend it in its source, and scan again"
                    )
                formless += 1
                continue
            left.discard(id_)
            places.append(start + i)
            chosen.ids.append(id_)
            chosen.sources.append(source)
            chosen.rows.append(row)
            chosen.reasons.append(reasons)
        start += batch.num_rows
    unknown = sorted(left - set(released_before))
    if unknown:
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        raise UsageError(f"the quarantine has no record {', '.join(unknown[:_NAMED])}{more}: see its column cleanse_id")
    return Chosen(np.array(places, np.int64), chosen.ids, chosen.sources, chosen.rows, chosen.reasons, formless)


def _weak(probe: Path, all_below: float | None) -> set[tuple[str, int]]:
    """(source, row) of the records whose p-value leaves less than this confidence."""
    if all_below is None:
        return set()
    if not probe.exists():
        raise UsageError("this scan had no probe: there is no confidence to go by")
    table = pq.read_table(probe, columns=["source", "row", "p_value"])
    p_values = table.column("p_value").to_numpy()
    with np.errstate(invalid="ignore"):
        table = table.filter(pa.array(1 - p_values < all_below))
    return set(zip(table.column("source").to_pylist(), table.column("row").to_pylist(), strict=True))
