"""Full stops before small letters are counted as a plain reading counts them, in every script that has capitals."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanse.measures import TextBatch, get

texts = st.lists(st.text(st.sampled_from("abC .!?\n\u00e9\u00c9\u0436\u0416\u4e2d9"), max_size=60), max_size=6)


def broken(*found: str) -> list[float]:
    return [float(v) for v in get("broken_sentences").compute(TextBatch.from_texts(list(found)))]


def plainly(text: str) -> float:
    balance = 0
    for i, char in enumerate(text[:-2]):
        before = text[:i].encode()[-3:]
        letters = len(before) == 3 and all(b >= 0x80 or chr(b).isalpha() for b in before)
        after = text[i + 2]
        ends = len(text[i + 2 :].encode()) < 2  # a last letter of one byte: nothing follows it
        if char in ".!?" and letters and text[i + 1] in " \n" and not ends:
            balance += after.islower() - after.isupper()
    return float(max(balance, 0))


@given(texts)
def test_counts_agree_with_a_plain_reading(found: list[str]) -> None:
    assert broken(*found) == [plainly(text) for text in found]


@pytest.mark.parametrize(
    "text",
    [
        "The river was wide. Nobody crossed it. They waited for the ferry. It came at noon.",
        (
            "\u0420\u0435\u043a\u0430 \u0431\u044b\u043b\u0430 \u0448\u0438\u0440\u043e\u043a\u0430. "
            "\u041d\u0438\u043a\u0442\u043e \u043d\u0435 \u0448\u0451\u043b. "
            "\u0412\u0441\u0435 \u0436\u0434\u0430\u043b\u0438. "
            "\u041f\u0430\u0440\u043e\u043c \u043f\u0440\u0438\u0448\u0451\u043b."
        ),
    ],
)
def test_shuffled_words_break_sentences(text: str) -> None:
    words = (text + " ") * 6
    shuffled = words.split()
    random.Random(3).shuffle(shuffled)
    assert broken(words)[0] == 0
    assert broken(" ".join(shuffled))[0] > 2
