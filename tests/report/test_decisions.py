"""Decisions as a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanse.errors import UsageError
from cleanse.report.decisions import FORMAT, KINDS, Decision, load, parse, save

DECISIONS = st.builds(Decision, st.text(min_size=1, max_size=20), st.sampled_from(KINDS), st.text(max_size=20))
UTF8 = DECISIONS.filter(lambda d: d.id.isascii() and d.note.isascii())


@given(st.lists(UTF8, max_size=5))
def test_what_is_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, decisions: list[Decision]) -> None:
    path = tmp_path_factory.mktemp("d") / "decisions.json"
    unique = {decision.id: decision for decision in decisions}
    save(path, unique.values())
    assert load(path) == dict(sorted(unique.items()))


def test_no_file_is_no_decision(tmp_path: Path) -> None:
    assert load(tmp_path / "none.json") == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is not JSON"),
        (b"[]", "holds no decisions"),
        (b'{"format": "other/1", "decisions": []}', "holds no decisions"),
        (b'{"format": "%s", "decisions": {}}' % FORMAT.encode(), "holds no decisions"),
        (b'{"format": "%s", "decisions": [{"id": "a"}]}' % FORMAT.encode(), "decision 0"),
        (b'{"format": "%s", "decisions": [{"id": 3, "decision": "agree"}]}' % FORMAT.encode(), "decision 0"),
        (b'{"format": "%s", "decisions": [{"id": "a", "decision": "keep"}]}' % FORMAT.encode(), "release, agree"),
    ],
)
def test_what_is_no_decision_is_refused_in_words(content: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(content, "d.json")
