"""The built-in packs keep their own promises."""

from __future__ import annotations

from importlib.resources import files

import pytest

from cleanse.records import EventKind
from cleanse.rulepacks import available, check, load_packs

OWN = ("encoding", "length", "repetition", "gibberish", "pattern", "structure", "reader")


def test_every_example_holds() -> None:
    assert [str(problem) for problem in check(load_packs(OWN))] == []


def test_every_event_is_claimed() -> None:
    rules = load_packs(("reader",))
    assert {rules.event_rule(kind).event for kind in EventKind} == set(EventKind)


@pytest.mark.parametrize("pack", OWN)
def test_files_hold_ascii_only(pack: str) -> None:
    text = (files("cleanse.rules") / f"{pack}.toml").read_text("utf-8")
    assert text.isascii(), "invisible and foreign characters are written as escapes"


def test_rules_say_why_and_are_named_after_their_pack() -> None:
    for rule in load_packs(OWN).rules:
        assert rule.id.startswith(f"{rule.pack}.")
        assert len(rule.why.split()) >= 6, rule.id


def test_all_packs_are_installed() -> None:
    assert set(OWN) <= {pack.name for pack in available()}
