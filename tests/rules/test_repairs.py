"""Repairs mend the damage, change nothing else, and doing them twice changes nothing more."""

from __future__ import annotations

import ftfy.badness
import numpy as np
import pytest
from cleanse.rules import locate  # noqa: F401 - importing the package registers the repairs
from cleanse.rules.badness import badness_of
from cleanse.rules.misread import badness, mend_misread
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanse import repairs
from cleanse.measures import TextBatch

ODD = "\u200b\u200c\u200d\u2060\ufeff\u202e\u2066\u202c\u0000\u001b\u0008\u0085\u009d\ufffd"
MISREAD = "\u00c3\u00a9\u00e2\u20ac\u2122\u0153\u00ec\u2039\u00a0\u00d0\u00bf\u00d1\u20ac "
texts = st.text(st.sampled_from("aB1 .\n\u4e2d\u0645\u0915\u0e01" + ODD + MISREAD), max_size=40)


@pytest.mark.parametrize("name", ["ftfy", "strip_bidi", "strip_bom", "strip_controls", "strip_zero_width"])
@settings(max_examples=150)
@given(text=texts)
def test_idempotent(name: str, text: str) -> None:
    apply = repairs.get(name).apply
    once = apply(text)
    assert apply(once) == once


ORIGINALS = [
    "It\u2019s na\u00efve \u2014 caf\u00e9, r\u00e9sum\u00e9\u2026 \u00a360,000",
    "\uc2e0\uacbd\uc4f0\uc9c0 \ub9c8\uc138\uc694. \uc815\ub9d0 \ud798\ub4e0 \uc77c\uc774\uc5d0\uc694.",
    "\u4eba\u4eba\u751f\u800c\u81ea\u7531\uff0c\u5728\u5c0a\u4e25\u548c\u6743\u5229\u4e0a\u4e00\u5f8b\u5e73\u7b49\u3002",
    "\u0412\u0441\u0435 \u043b\u044e\u0434\u0438 \u0440\u043e\u0436\u0434\u0430\u044e\u0442\u0441\u044f",
    "\u0539\u0578\u0582\u0575\u056c \u057f\u0578\u0582\u0580 \u0578\u0582\u0576\u056b",
    "\U0001f600 and \U0001f468 with text",
]


@pytest.mark.parametrize("codec", ["latin-1", "cp1252"])
@pytest.mark.parametrize("original", ORIGINALS)
def test_misread_text_comes_back(original: str, codec: str) -> None:
    raw = original.encode("utf-8")
    misread = "".join(bytes([b]).decode(codec, "ignore") or chr(b) for b in raw)
    assert mend_misread(misread) == original


def test_spaces_that_took_the_place_of_bytes() -> None:
    original = "\u56e0\u4e3a\u5176\u4ed6\u5305\u62ec\u53c2\u52a0\u5de5\u4f1a\u7684\u6743\u5229\u548c\u72af\u7f6a\u8005"
    misread = original.encode().decode("latin-1").replace("\x85", " ").replace("\xa0", " ")
    assert " " in misread
    assert mend_misread(misread) == original


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], max_codepoint=0x7F), max_size=60))
def test_ascii_is_left_alone(text: str) -> None:
    assert mend_misread(text) == text
    assert badness(text) == 0


@pytest.mark.parametrize(
    ("damaged", "mended"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("N\x08NA\x08AM\x08M", "NAM"),
        ("_\x08u", "u"),
        ("2\x1b h\x07ours, b\x7furn", "2 hours, burn"),
        ("tab\there\r\n\f", "tab\there\r\n\f"),
        ("In\x08terpretation", "Interpretation"),
    ],
)
def test_controls(damaged: str, mended: str) -> None:
    assert repairs.get("strip_controls").apply(damaged) == mended


@pytest.mark.parametrize(
    ("damaged", "mended"),
    [
        ("wo\u200brd \u2060here\ufeff", "word here"),
        ("\u0645\u06cc\u200c\u062e\u0648", "\u0645\u06cc\u200c\u062e\u0648"),
        ("\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469"),
        ("a\u200b\u200c\u200db", "ab"),
    ],
)
def test_zero_width(damaged: str, mended: str) -> None:
    assert repairs.get("strip_zero_width").apply(damaged) == mended


@given(
    st.lists(
        st.text(
            st.one_of(
                st.sampled_from(MISREAD + "aB1 .\n\u00c2\u00c3\u0413\u0432\u0402"),
                st.characters(exclude_categories=["Cs"]),
            ),
            max_size=40,
        ),
        min_size=1,
        max_size=5,
    )
)
def test_badness_of_a_batch_is_ftfys(texts: list[str]) -> None:
    found = badness_of(TextBatch.from_texts(texts), np.arange(len(texts)))
    assert found.tolist() == [ftfy.badness.badness(text) for text in texts]
