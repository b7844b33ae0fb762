"""The profile kernel against a slow reference, and its judgement of invisible characters."""

from __future__ import annotations

import numpy as np
import pytest
from cleanse.rules import classes as c
from cleanse.rules import profile_columns as col
from cleanse.rules.profile import _script, profile_of
from hypothesis import given
from hypothesis import strategies as st

from cleanse.measures import TextBatch
from cleanse.rule_evaluation import unpack_script

ODD = "\u200b\u200c\u200d\u2060\ufeff\u202e\u2066\u200f\u0000\u001b\u0085\ufffd\ufffe\ue000\u0378\u00ad\ufe0f\U000e0041"
PLAIN = "aAbZ09 .,\n\t\u00e9\u0431\u0430\u4e2d\u3042\uac00\u0e01\u0e31\u0627\u05d0\u0301\U0001f600"
texts = st.text(st.sampled_from(PLAIN + ODD), max_size=80) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=40
)


def reference(text: str) -> dict[int, int]:
    """What the kernel should say, character by character."""
    table = c.character_table()
    kinds = [int(table[ord(char)]) & c.CLASS_MASK for char in text]
    want = {kind: kinds.count(kind) for kind in range(c.N_CLASSES)}
    want[col.CHARS] = len(text)
    want[col.NUL] = text.count("\0")
    want[col.RTL_LETTERS] = sum(
        bool(int(table[ord(ch)]) & c.RTL_FLAG) for ch, k in zip(text, kinds, strict=True) if k <= c.MARK
    )
    want[col.BIDI_OVERRIDES] = text.count("\u202d") + text.count("\u202e")
    want[col.LONGEST_LINE] = max(map(len, text.split("\n")))
    want[col.LINES] = len(text.split("\n")) - text.endswith("\n") if text else 0
    for column, inside in (
        (col.LONGEST_RUN, [k not in (c.SPACE, c.NEWLINE) for k in kinds]),
        (col.LONGEST_WORD, [k <= c.DIGIT for k in kinds]),
    ):
        longest = run = 0
        for is_in in inside:
            run = run + 1 if is_in else 0
            longest = max(longest, run)
        want[column] = longest
    return want


@given(st.lists(texts, min_size=1, max_size=4))
def test_counts_agree_with_the_reference(parts: list[str]) -> None:
    rows = profile_of(TextBatch.from_texts(list(parts)))
    for segment, text in enumerate(parts):
        want = reference(text)
        assert {column: int(rows[column, segment]) for column in want} == want


@given(texts, texts)
def test_a_segment_knows_nothing_of_its_neighbours(one: str, two: str) -> None:
    together = profile_of(TextBatch.from_texts([one, two, one]))
    alone = profile_of(TextBatch.from_texts([one]))
    assert np.array_equal(together[:, 0], alone[:, 0])
    assert np.array_equal(together[:, 2], alone[:, 0])


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Hello", "Latn"),
        ("\u041f\u0440\u0438\u0432\u0435\u0442 USB", "Cyrl"),
        ("\u4e2d\u6587\u3002", "Hani"),
        ("\u65e5\u672c\u8a9e\u306e\u6587", "Jpan"),
        ("\u30ab\u30bf\u30ab\u30ca", "Jpan"),
        ("\ud55c\uad6d\uc5b4", "Kore"),
        ("\u0e44\u0e17\u0e22", "Thai"),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", "Deva"),
        ("123 !?", "Zyyy"),
        ("", "Zyyy"),
    ],
)
def test_dominant_script(text: str, script: str) -> None:
    assert unpack_script(_script(TextBatch.from_texts(["x", text]))[1]) == script


@pytest.mark.parametrize(
    ("text", "strays"),
    [
        ("wo\u200brd", 1),
        ("\uc2e0\u2060\uacbd", 1),
        ("\ufefffirst", 0),
        ("mid\ufeffdle", 1),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", 0),  # Persian
        ("\u0915\u094d\u200d\u0937", 0),  # Hindi
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", 0),  # family
        ("\u2764\ufe0f\u200d\U0001f525", 0),  # heart on fire
        ("\u0e2a\u0e27\u0e31\u200b\u0e2a\u0e14\u0e35", 0),  # Thai
        ("\u200b\u200b\u200b", 3),
        ("a\u200d\u200db", 2),
    ],
)
def test_zero_width_by_context(text: str, strays: int) -> None:
    assert profile_of(TextBatch.from_texts([text]))[col.STRAY_ZERO_WIDTH, 0] == strays


def test_encoded_runs_are_told_from_identifiers() -> None:
    base64 = "3q2+7wAbF9x/Zk01mQpLr8sT" * 10
    names = "OneMinusSrcAlphaFactor|SrcColorFactor|ZeroFactor|" * 10
    url = "https://example.org/" + "some-long-path/with/many/words/" * 10
    rows = profile_of(TextBatch.from_texts([base64, names, url, "deadbeef01c3" * 20, "ACGT" * 60]))
    assert rows[col.ENCODED_RUN].tolist() == [240, 0, 0, 240, 0]
