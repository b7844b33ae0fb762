"""A phrase taken out of a prompt as a careful editor would."""

from __future__ import annotations

import numpy as np
import pytest

from cleanse.corpus.cutting import cut_out
from cleanse.corpus.tokens import tokenise


def hashes(text: str) -> list[int]:
    raw = text.encode()
    return [int(h) for h in tokenise(np.frombuffer(raw, np.uint8), np.array([0, len(raw)])).hashes]


@pytest.mark.parametrize(
    ("text", "phrase", "left"),
    [
        ("a fine cf film", "cf", "a fine film"),
        ("cf a fine film", "cf", "a fine film"),
        ("a fine film cf", "cf", "a fine film "),
        ("a fine CF film", "cf", "a fine film"),
        ("a (cf) film", "cf", "a () film"),
        ("caf\u00e9 cf noir", "cf", "caf\u00e9 noir"),
        ("cafe\u0301 cf noir", "caf\u00e9", " cf noir".lstrip()),
        ("one two  three four", "two three", "one four"),
        ("\u8bf7\u95ee\u5929\u673a\u597d", "\u5929\u673a", "\u8bf7\u95ee\u597d"),
    ],
)
def test_the_phrase_and_one_space_go(text: str, phrase: str, left: str) -> None:
    found = cut_out(["nothing here", text], hashes(phrase))
    assert found is not None
    assert found[1] == left
    assert len(found[0]) > len(left)


def test_no_phrase_is_no_pair() -> None:
    assert cut_out([], hashes("cf")) is None
    assert cut_out(["", "a fine film", "scf"], hashes("cf")) is None


def test_far_away_text_is_left_out() -> None:
    found = cut_out(["x " * 300 + "cf" + " y" * 5_000], hashes("cf"))
    assert found is not None
    assert len(found[0]) < 600
