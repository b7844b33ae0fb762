"""Repeats of any period are found with place and count; text that does not repeat is left alone."""

from __future__ import annotations

import random

from cleanse.rules.repetition import periodic_stretches, repetition_of
from cleanse.rules.repetition_kernel import (
    COPIED_BYTES,
    PERIOD_BYTES,
    PERIOD_REPEATS,
    PERIOD_STRETCH,
    RULER_STRETCH,
)
from hypothesis import given
from hypothesis import strategies as st

from cleanse.measures import TextBatch

units = st.text(st.sampled_from("ab c,\u4e2d\u54c8\ud55c\u0431"), min_size=1, max_size=25).filter(
    lambda unit: any(char.isalnum() for char in unit)
)


@given(units, st.integers(40, 90), st.text("xyz \u6587", max_size=50), st.text("xyz \u6587", max_size=50))
def test_every_period_is_found(unit: str, times: int, before: str, after: str) -> None:
    size = len(unit.encode())
    text = before + unit * times + after
    row = repetition_of(TextBatch.from_texts([text]))[0]
    if size * times < 100:
        return
    assert row[PERIOD_STRETCH] >= size * times - 40  # the gram in which the stretch begins may be missed
    assert size % row[PERIOD_BYTES] == 0 or row[PERIOD_BYTES] % size == 0 or row[PERIOD_STRETCH] > size * times
    assert row[PERIOD_REPEATS] >= 8


def test_rulers_are_no_words() -> None:
    rows = repetition_of(TextBatch.from_texts(["=-" * 200, "-" * 300, "0" * 300]))
    assert rows[:, RULER_STRETCH].tolist() == [400, 300, 0]
    assert rows[:, PERIOD_STRETCH].tolist() == [0, 0, 300]


def test_text_without_repeats() -> None:
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 9))) for _ in range(400)]
    row = repetition_of(TextBatch.from_texts([" ".join(words)]))[0]
    assert row[PERIOD_STRETCH] == 0
    assert row[COPIED_BYTES] == 0


def test_a_segment_does_not_match_the_one_before() -> None:
    text = "The quick brown fox jumps over the lazy dog, and the cat looks on with great interest."
    rows = repetition_of(TextBatch.from_texts([text] * 40))
    assert not rows.any()


def test_place_in_characters() -> None:
    text = "\u4e2d\u6587 before " + "\u54c8 " * 100 + "after"
    start, end = periodic_stretches(text)[0]
    assert text[start:end].strip("\u54c8 ") in ("", "a")
    assert end - start >= 190
