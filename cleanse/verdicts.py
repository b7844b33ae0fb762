"""From findings to a verdict per record: stays, stays mended, or is held back, and for which reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cleanse.records import Action

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Policy:
    """What the user decided about findings that are not proof."""

    hold_suspects: bool = False
    repair: bool = True

    @property
    def holding(self) -> list[str]:
        """The actions that move a record to quarantine."""
        return [Action.REJECT.value, Action.SUSPECT.value] if self.hold_suspects else [Action.REJECT.value]


@dataclass(frozen=True)
class Verdicts:
    """Verdicts for the records that have findings; every other record stays as it is."""

    held: Rows  # ascending, unique
    reasons: list[list[str]]  # (held,) rule ids, strongest first
    mended: Rows  # ascending, unique: records that stay and that a repair rule has something to say about
    suspected: Rows  # ascending, unique: records with a suspicion or proof, wherever they end


def decide(findings: pa.Table, strays: Rows, policy: Policy, rank: Mapping[str, int]) -> Verdicts:
    """Judges the records that ``findings`` speak of.

    Args:
        findings: columns ``row``, ``rule`` and ``action``; rows below 0 concern a whole source and hold nothing.
        strays: ascending numbers of the records that could not be parsed: held whatever the rules say.
        policy: what holds a record.
        rank: place of each rule among reasons, 0 for the strongest; unknown rules come last, by id.
    """
    rows = findings.column("row").to_numpy()
    actions = findings.column("action")
    proof = pc.is_in(actions, pa.array(policy.holding)).to_numpy(zero_copy_only=False)
    held = np.union1d(rows[proof & (rows >= 0)], strays)
    doubt = pc.is_in(actions, pa.array([Action.REJECT.value, Action.SUSPECT.value])).to_numpy(zero_copy_only=False)
    mending = pc.equal(actions, Action.REPAIR.value).to_numpy(zero_copy_only=False) & policy.repair
    return Verdicts(
        held=held,
        reasons=_reasons(findings, rows, held, doubt | np.isin(rows, strays), rank),
        mended=np.setdiff1d(rows[mending & (rows >= 0)], held),
        suspected=np.union1d(rows[doubt & (rows >= 0)], strays),
    )


def _reasons(
    findings: pa.Table, rows: Rows, held: Rows, speaks: NDArray[np.bool_], rank: Mapping[str, int]
) -> list[list[str]]:
    """The rules that speak against each held record: the loop runs over findings of held records only."""
    chosen = np.flatnonzero(speaks & np.isin(rows, held))
    rules = findings.column("rule").take(pa.array(chosen)).to_pylist()
    per_row: list[set[str]] = [set() for _ in held]
    for place, rule in zip(np.searchsorted(held, rows[chosen]), rules, strict=True):
        per_row[place].add(rule)
    return [sorted(found, key=lambda rule: (rank.get(rule, len(rank)), rule)) for found in per_row]
