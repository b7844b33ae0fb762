"""What a hit says to a person: place, one sentence with value and limit, and an excerpt safe to print."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from cleanse import measures
from cleanse.measures import Span, TextBatch
from cleanse.rule_evaluation import Hits, compile_regex
from cleanse.rulepack_schema import Rule
from cleanse.safe_text import escape, excerpt, name

LOCATE_CHARACTERS = 4_000_000
"""Spans are looked for in the first so many characters: a longer text keeps its finding, without a place."""

_QUOTED = 12  # a span up to so many characters is quoted in the message


class View(Protocol):
    """What explaining needs of a TextView: the texts, and the name of a segment's field."""

    @property
    def texts(self) -> TextBatch:
        """The batch that was evaluated."""

    def field(self, segment: int, /) -> str:
        """The name of the segment's field, such as "output" or "messages[2].content"."""


class Explanation(NamedTuple):
    """The part of a Finding that needs no source and row number, and where it belongs."""

    record: int
    segment: int
    rule: Rule
    field: str
    start: int | None
    end: int | None
    value: float | None
    limit: float | None
    message: str
    excerpt: str


def explain(rules: Sequence[Rule], hits: Hits, view: View) -> Iterator[Explanation]:
    """One explanation per hit, in the hits' order; each text is decoded once."""
    segment, text = -1, ""
    for i in range(len(hits)):
        if int(hits.segment[i]) != segment:
            segment = int(hits.segment[i])
            text = view.texts.text(segment)
        rule = rules[int(hits.rule[i])]
        value, limit = float(hits.value[i]), float(hits.limit[i])
        spans = locate(rule, text)
        start, end = spans[0] if spans else (None, None)
        yield Explanation(
            record=int(hits.record[i]),
            segment=segment,
            rule=rule,
            field=view.field(segment),
            start=start,
            end=end,
            value=value,
            limit=limit,
            message=message(rule, text, spans, value, limit) + _note(view.texts, rule, segment),
            excerpt=excerpt(text, start, end),
        )


def _note(texts: TextBatch, rule: Rule, segment: int) -> str:
    """What the measure itself has to say about the segment: words from outside, such as a template's error."""
    notes = texts.memo.get("notes") or {}
    said = notes.get((rule.measure, segment))
    return f": {escape(str(said))}" if said else ""


def locate(rule: Rule, text: str) -> list[Span]:
    """Where in the text the rule's reason stands: a handful of spans in characters, or []."""
    text = text[:LOCATE_CHARACTERS]
    if rule.pattern is not None:
        return _pattern_spans(rule, text)
    if rule.measure is None:
        return []
    find = measures.get(rule.measure).locate
    return find(text) if find is not None else []


def _pattern_spans(rule: Rule, text: str) -> list[Span]:
    assert rule.pattern is not None
    compiled = compile_regex(rule.pattern.text)
    try:
        return [m.span() for m, _ in zip(compiled.finditer(text, timeout=1.0), range(5), strict=False)]
    except TimeoutError:
        return []


def message(rule: Rule, text: str, spans: list[Span], value: float, limit: float) -> str:
    """One sentence, as in "Bidirectional override: U+202E ... at character 17 (3 characters, limit 0)"."""
    unit = measures.get(rule.measure).unit if rule.measure else "matches"
    figures = f"{amount(value, unit)}, limit {amount(limit, '' if unit == 'flag' else unit, bare=True)}"
    place = ""
    if spans:
        start, end = spans[0]
        place = f": {_what(text, start, end)}"
    if unit == "flag":
        return f"{rule.summary}{place}"
    return f"{rule.summary}{place} ({figures})"


def _what(text: str, start: int, end: int) -> str:
    if end - start == 1 and escape(text[start]) != text[start]:
        return f"{name(text[start])} at character {start}"
    if end - start <= _QUOTED:
        return f'"{escape(text[start:end])}" at character {start}'
    return f"characters {start} to {end}"


def amount(value: float, unit: str, *, bare: bool = False) -> str:
    """A number as people read it: shares as per cent, whole numbers without decimals."""
    if unit.startswith("share"):
        per_cent = f"{100 * value:.3g} %"
        return per_cent if bare else f"{per_cent}{re.sub('^share', '', unit)}"
    whole = math.isinf(value) or value == int(value)
    number = f"{value:,.0f}" if whole else f"{value:.3g}"
    return number if bare or not unit else f"{number} {unit}"
