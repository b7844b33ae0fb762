"""What a finding says: readable, placed, and safe to print."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanse.measures import TextBatch
from cleanse.rule_explanation import amount
from cleanse.rulepacks import load_packs
from cleanse.safe_text import escape, excerpt, name


@dataclass
class View:
    """A view of one-segment records."""

    texts: TextBatch

    def field(self, segment: int) -> str:
        return f"output[{segment}]"


def explained(*texts: str):
    rules = load_packs(("encoding", "length", "gibberish", "repetition"))
    batch = TextBatch.from_texts(list(texts))
    return rules.explain(rules.evaluate(batch), View(batch))


def test_place_value_and_limit() -> None:
    found = explained("fine", "Look here, this is\u202e reversed")
    assert len(found) == 1
    assert (found[0].record, found[0].field, found[0].start, found[0].end) == (1, "output[1]", 18, 19)
    assert found[0].message == (
        "Bidirectional override: U+202E RIGHT-TO-LEFT OVERRIDE at character 18 (1 overrides, limit 0)"
    )
    assert found[0].excerpt == "Look here, this is\\u202e reversed"


def test_long_stretches_are_cut() -> None:
    found = explained("before " + "ab" * 15_000)
    blob = next(f for f in found if f.rule.id == "length.unbroken-run")
    assert (blob.start, blob.end, blob.value, blob.limit) == (7, 30_007, 30_000, 20_000)
    assert "30,000 characters without a break, limit 20,000" in blob.message
    assert len(blob.excerpt) < 200


def test_notes_of_measures_are_appended() -> None:
    rules = load_packs(("length",))
    batch = TextBatch.from_texts(["x" * 30_000])
    batch.memo["notes"] = {("longest_run", 0): "said \x1b[31mso"}
    found = rules.explain(rules.evaluate(batch), View(batch))
    assert found[0].message.endswith(": said \\u001b[31mso")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_escaped_text_prints_safely(text: str) -> None:
    shown = escape(text)
    # A letter of a Unicode version after this Python's is no danger; the pattern knows it already.
    assert all(char.isprintable() or unicodedata.category(char) == "Cn" for char in shown)
    assert not any(ord(char) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(char) <= 0xFDEF for char in shown)  # noncharacters
    assert not any(char in shown for char in "\u200b\u202e\u00ad\ufeff\ufe0f\u3164")


@given(st.text(max_size=3000), st.integers(0, 3000), st.integers(0, 500))
def test_excerpts_are_short(text: str, start: int, length: int) -> None:
    start = min(start, len(text))
    shown = excerpt(text, start, min(len(text), start + length))
    assert len(shown) <= 3 * 120 + 10


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (1.0, "overrides", "1 overrides"),
        (0.123, "share of characters", "12.3 % of characters"),
        (30000.0, "characters", "30,000 characters"),
        (3.456, "nats per character", "3.46 nats per character"),
    ],
)
def test_amounts(value: float, unit: str, said: str) -> None:
    assert amount(value, unit) == said


def test_names() -> None:
    assert name("\u202e") == "U+202E RIGHT-TO-LEFT OVERRIDE"
    assert name("\0") == "U+0000 control character"
