"""Suspicions about text that a repair mends."""

from __future__ import annotations

import pytest

from cleanse.cured import without_cured
from cleanse.measures import TextBatch
from cleanse.rulepacks import load_packs
from cleanse.trainer_view.asking import token_source

ORIGINAL = (
    "\u0532\u0578\u056c\u0578\u0580 \u0574\u0561\u0580\u0564\u056b\u056f \u056e\u0576\u057e\u0578\u0582\u0574 "
    "\u0565\u0576 \u0561\u0566\u0561\u057f \u0587 \u0570\u0561\u057e\u0561\u057d\u0561\u0580. "
)
MISREAD = (ORIGINAL * 6).encode().decode("latin-1")


def found(text: str) -> tuple[set[str], set[str]]:
    """Rules that a text crosses, and those that are left once what a repair ends is taken out."""
    rules = load_packs()
    source = token_source("embedded")
    assert source is not None
    context = source.load()
    batch = TextBatch.from_texts([text])
    context.attach(batch)
    hits = rules.evaluate(batch)
    left = without_cured(rules, hits, batch, context)
    return ({rules.rules[r].id for r in hits.rule.tolist()}, {rules.rules[r].id for r in left.rule.tolist()})


def test_misread_text_is_dense_only_until_it_is_mended() -> None:
    before, after = found(MISREAD)
    assert {"encoding.mojibake", "tokens.dense"} <= before
    assert "encoding.mojibake" in after
    assert "tokens.dense" not in after


@pytest.mark.parametrize("junk", ["Zq9 x!vK3 #pW8 @mL2 %tR7 ^bN4 &cJ6 *fD5 (gH1) " * 12])
def test_what_is_odd_in_the_mended_text_too_stays(junk: str) -> None:
    before, after = found(MISREAD + junk)
    suspected = before - {"tokens.dense"}
    assert any(rule.startswith(("gibberish.", "repetition.")) for rule in suspected)
    assert suspected <= after


def test_without_a_repair_nothing_changes() -> None:
    before, after = found("Plain text. " * 20 + "Zq9 x!vK3 #pW8 @mL2 %tR7 ^bN4 &cJ6 *fD5 (gH1) " * 12)
    assert before == after
