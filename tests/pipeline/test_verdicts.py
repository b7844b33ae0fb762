from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanse.findings import table
from cleanse.records import Action, Finding
from cleanse.verdicts import Policy, decide

NONE = np.zeros(0, np.int64)
RANK = {"strong": 0, "middle": 1, "weak": 2}


def finding(row: int, rule: str, action: str) -> Finding:
    return Finding("a.jsonl", row, rule, action, "text", None, None, None, None, "", "")


def test_each_action_has_its_consequence() -> None:
    found = table(
        [
            finding(1, "weak", "note"),
            finding(2, "weak", "repair"),
            finding(3, "weak", "suspect"),
            finding(4, "weak", "reject"),
        ]
    )
    kept = decide(found, NONE, Policy(), RANK)
    assert (kept.held.tolist(), kept.mended.tolist(), kept.suspected.tolist()) == ([4], [2], [3, 4])
    strict = decide(found, NONE, Policy(hold_suspects=True, repair=False), RANK)
    assert (strict.held.tolist(), strict.mended.tolist()) == ([3, 4], [])


def test_reasons_are_those_against_the_record_strongest_first_each_once() -> None:
    found = table(
        [
            finding(7, "weak", "reject"),
            finding(7, "strong", "suspect"),
            finding(7, "strong", "suspect"),
            finding(7, "other", "note"),
            finding(7, "middle", "repair"),
            finding(7, "unranked", "reject"),
            finding(8, "weak", "suspect"),
        ]
    )
    verdicts = decide(found, NONE, Policy(), RANK)
    assert verdicts.held.tolist() == [7]
    assert verdicts.reasons == [["strong", "weak", "unranked"]]
    assert verdicts.mended.tolist() == []  # what is quarantined is not mended


def test_a_stray_is_held_whatever_its_rule_asks_for() -> None:
    verdicts = decide(table([finding(5, "weak", "note")]), np.array([5, 9]), Policy(), RANK)
    assert verdicts.held.tolist() == [5, 9]
    assert verdicts.reasons == [["weak"], []]


def test_findings_about_the_file_hold_no_record() -> None:
    verdicts = decide(table([finding(-1, "weak", "reject"), finding(-1, "weak", "repair")]), NONE, Policy(), RANK)
    assert (verdicts.held.tolist(), verdicts.mended.tolist(), verdicts.suspected.tolist()) == ([], [], [])


@given(
    st.lists(st.tuples(st.integers(-1, 20), st.sampled_from([*RANK, "x"]), st.sampled_from([a.value for a in Action]))),
    st.sets(st.integers(0, 20)),
    st.booleans(),
    st.booleans(),
)
def test_agrees_with_a_plain_reading_of_the_policy(found, strays, hold, repair) -> None:
    verdicts = decide(
        table([finding(*f) for f in found]),
        np.array(sorted(strays), np.int64),
        Policy(hold_suspects=hold, repair=repair),
        RANK,
    )
    holding = {"reject", "suspect"} if hold else {"reject"}
    held = sorted({row for row, _, action in found if action in holding and row >= 0} | strays)
    assert verdicts.held.tolist() == held
    assert len(verdicts.reasons) == len(held)
    mended = {row for row, _, action in found if action == "repair" and row >= 0} - set(held)
    assert verdicts.mended.tolist() == (sorted(mended) if repair else [])


@pytest.mark.parametrize("rows", [[], [3]])
def test_nothing_found_is_nothing_done(rows: list[int]) -> None:
    verdicts = decide(table([]), np.array(rows, np.int64), Policy(), RANK)
    assert verdicts.held.tolist() == rows
