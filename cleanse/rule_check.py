"""Runs every example of every rule, and refuses rules without examples and patterns that can run away."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cleanse import repairs
from cleanse.measures import TextBatch
from cleanse.records import EventKind
from cleanse.rule_evaluation import compile_regex, evaluate
from cleanse.rulepack_schema import Example, Pattern, Rule
from cleanse.safe_text import escape

_PUMPED = 20_000  # characters of the texts on which a backtracking pattern has to stay quick


@dataclass(frozen=True)
class Problem:
    """A promise that a rule does not keep."""

    rule: str
    origin: str
    text: str

    def __str__(self) -> str:
        return f"{self.origin}: rule {self.rule!r}: {self.text}"


def check(rules: Sequence[Rule]) -> list[Problem]:
    """Every problem of every rule, in the rules' order; [] when all examples hold."""
    return [Problem(rule.id, rule.origin, text) for rule in rules for text in _problems(rule)]


def _problems(rule: Rule) -> Iterator[str]:
    if not rule.should_pass and rule.unexampled is None:
        yield "should_pass: expected at least one example"
    if not rule.should_match and rule.unexampled is None:
        yield "should_match: expected at least one example, or unexampled with the reason why there is none"
    if rule.pattern is not None:
        problem = _pattern_problem(rule.pattern, rule.should_match)
        if problem:
            yield problem
            return
    matches = _matches_event if rule.event is not None else _matches_text
    for key, examples, wanted in (("should_match", rule.should_match, True), ("should_pass", rule.should_pass, False)):
        for number, example in enumerate(examples, 1):
            if matches(rule, example) != wanted:
                said = "does not match" if wanted else "matches"
                yield f"{key}: example {number} ({_shown(example)}) {said}"
    yield from _repair_problems(rule)


def _repair_problems(rule: Rule) -> Iterator[str]:
    if rule.repair is None:
        return
    apply = repairs.get(rule.repair).apply
    for number, example in enumerate(rule.should_match, 1):
        if example.text is None:
            continue
        mended = apply(example.text)
        if apply(mended) != mended:
            yield f"repair: {rule.repair} changes its own result of should_match example {number}"
        if _matches_text(rule, Example(text=mended, role=example.role, supervised=example.supervised)):
            yield f"repair: {rule.repair} leaves should_match example {number} matching"


def batch_of(example: Example) -> TextBatch:
    """The example as a batch of one record. Raises ValueError for raw bytes, which only a reader understands."""
    if example.raw is not None:
        raise ValueError("raw bytes are examples of event rules")
    parts = example.record or ((example.role, example.text, example.supervised),)
    texts = TextBatch.from_texts([text for _, text, _ in parts])
    return TextBatch(
        data=texts.data,
        offsets=texts.offsets,
        record=np.zeros(len(parts), np.int64),
        role=np.array([role for role, _, _ in parts], np.uint8),
        supervised=np.array([supervised for _, _, supervised in parts], np.bool_),
        is_null=texts.is_null,
        n_records=1,
    )


def _matches_text(rule: Rule, example: Example) -> bool:
    return example.raw is None and len(evaluate([rule], batch_of(example))) > 0


def _matches_event(rule: Rule, example: Example) -> bool:
    return example.raw is not None and rule.event in _events(example)


def _events(example: Example) -> set[EventKind]:
    """What the readers say about a file with the example's bytes, in both passes and about the whole source."""
    from cleanse.sources import ReadOptions, Types, open_shard, plan, source_events  # noqa: PLC0415 - heavy

    assert example.raw is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"example{example.suffix}"
        path.write_bytes(example.raw)
        options = ReadOptions(**dict(example.options))
        planned = plan([str(path)], options, Path(folder))
        found: set[EventKind] = set()
        types, facts = Types(), []
        for shard in planned.shards:
            reader = open_shard(shard, options)
            for block in reader:
                found |= {stray.event.kind for stray in block.strays} | {event.kind for event in block.events}
            facts.append(reader.facts)
            types = types.merge(reader.facts.types)
        for shard in planned.shards:
            for block in open_shard(shard, options, types):
                found |= {event.kind for event in block.events}
        for events in source_events(planned, facts).values():
            found |= {event.kind for event in events}
    return found


def _pattern_problem(pattern: Pattern, examples: Sequence[Example]) -> str | None:
    try:
        if pattern.engine == "re2":
            pc.count_substring_regex(pa.array([""]), pattern.text)
        compiled = compile_regex(pattern.text)
    except Exception as error:  # noqa: BLE001 - RE2 and regex raise types of their own; the words are what counts
        return f"pattern: not a valid {pattern.engine} pattern: {error}"
    if compiled.search("") is not None:
        return "pattern: matches the empty text, so it would match everywhere"
    if pattern.engine == "regex":
        for text in _pumped(pattern, examples):
            try:
                for _ in compiled.finditer(text, timeout=pattern.timeout_s):
                    pass
            except TimeoutError:
                return (
                    f"pattern: runs away on {escape(text[:20])}... ({len(text):,} characters took more than "
                    f"{pattern.timeout_s} s)"
                )
    return None


def _pumped(pattern: Pattern, examples: Sequence[Example]) -> Iterator[str]:
    """Texts that drive a backtracking pattern far: its letters and its examples, over and over, unfinished."""
    pieces = ["a", "ab", " ", "a ", "0", "\n", "a\n", *sorted(set(pattern.text))]
    for example in examples:
        if example.text:
            pieces += [example.text[:200], example.text[: len(example.text) // 2][:200], example.text[:-1][:200]]
    for piece in pieces:
        if piece:
            yield (piece * (_PUMPED // len(piece) + 1))[:_PUMPED] + "\x01"


def _shown(example: Example) -> str:
    if example.raw is not None:
        return f"hex {example.raw[:24].hex()}{'...' if len(example.raw) > 24 else ''}"  # noqa: PLR2004
    if example.record:
        return f"a record of {len(example.record)} segments"
    if example.text is None:
        return "null"
    return f'"{escape(example.text[:40])}"{"..." if len(example.text) > 40 else ""}'  # noqa: PLR2004
