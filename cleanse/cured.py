"""Suspicions that a repair ends: what counts is the text as ``clean/`` will hold it.

Misread text looks dense to a tokenizer, and letters between zero-width characters look like no words. Where a repair
mends the text, the rules that only suspect are asked again, about the mended text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cleanse.measures import TextBatch
from cleanse.records import Action
from cleanse.rule_evaluation import Hits, measured
from cleanse.rulepacks import Rule, RuleSet

if TYPE_CHECKING:
    from cleanse.trainer_view import TokenContext


def without_cured(rules: RuleSet, hits: Hits, texts: TextBatch, tokens: TokenContext | None) -> Hits:
    """The hits but for suspicions about segments that are above them once mended.

    A suspicion stays where its rule cannot judge the mended text alone, as those about whole conversations cannot.
    """
    mends, suspects = (np.array([asked(rule) for rule in rules.rules])[hits.rule] for asked in (_mends, _suspects))
    segments = np.intersect1d(hits.segment[mends], hits.segment[suspects])
    if not len(segments):
        return hits
    mended = _mended(rules, hits, texts, segments, mends)
    if tokens is not None:
        tokens.attach(mended)
    again = rules.evaluate(mended)
    still = set(zip(segments[again.segment].tolist(), again.rule.tolist(), strict=True))
    kept = np.ones(len(hits), np.bool_)
    for i in np.flatnonzero(suspects & np.isin(hits.segment, segments)).tolist():
        segment, rule = int(hits.segment[i]), int(hits.rule[i])
        place = int(np.searchsorted(segments, segment))
        kept[i] = (segment, rule) in still or not _judges(rules.rules[rule], mended, place)
    return Hits(hits.rule[kept], hits.segment[kept], hits.record[kept], hits.value[kept], hits.limit[kept])


def _mends(rule: Rule) -> bool:
    return rule.action is Action.REPAIR and rule.repair is not None


def _suspects(rule: Rule) -> bool:
    return rule.action is Action.SUSPECT


def _mended(
    rules: RuleSet, hits: Hits, texts: TextBatch, segments: NDArray[np.int64], mends: NDArray[np.bool_]
) -> TextBatch:
    found: list[str | None] = []
    for segment in segments.tolist():
        asked = {rules.rules[r].id for r in hits.rule[mends & (hits.segment == segment)].tolist()}
        found.append(rules.mend(texts.text(segment), asked))
    return replace(TextBatch.from_texts(found), role=texts.role[segments], supervised=texts.supervised[segments])


def _judges(rule: Rule, mended: TextBatch, place: int) -> bool:
    """Whether the rule has a value for the mended text; a measure that does not apply to it says nothing."""
    return rule.measure is None or not np.isnan(measured(rule.measure, mended)[place])
