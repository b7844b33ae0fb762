"""Recall and false alarms on the evaluation data beside the project, where it is there."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from cleanse.measures import TextBatch
from cleanse.records import Action, Role
from cleanse.rulepacks import load_packs

PACKS = ("encoding", "length", "repetition", "gibberish", "pattern", "structure", "reader")
HELD = ["mojibake", "base64_blob", "repeat_token", "repeat_ngram", "zero_width", "bidi_override", "control_chars"]
HELD += ["over_long_run", "empty_output"]


def read(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Records that parse, and their line numbers."""
    records, lines = [], []
    for number, line in enumerate(path.read_bytes().split(b"\n")):
        try:
            records.append(orjson.loads(line))
            lines.append(number)
        except orjson.JSONDecodeError:
            continue
    return records, lines


def batch(records: list[dict[str, Any]]) -> TextBatch:
    """Documents, or instruction, input and output as segments."""
    segments = []
    for number, record in enumerate(records):
        if "text" in record:
            segments.append((number, record["text"], Role.TEXT, True))
            continue
        segments.append((number, record["instruction"], Role.USER, False))
        if record["input"]:
            segments.append((number, record["input"], Role.USER, False))
        segments.append((number, record["output"], Role.ASSISTANT, True))
    texts = TextBatch.from_texts([s[1] for s in segments])
    return TextBatch(
        data=texts.data,
        offsets=texts.offsets,
        record=np.array([s[0] for s in segments], np.int64),
        role=np.array([s[2] for s in segments], np.uint8),
        supervised=np.array([s[3] for s in segments], np.bool_),
        is_null=texts.is_null,
        n_records=len(records),
    )


def verdicts(records: list[dict[str, Any]]) -> list[set[Action]]:
    """The actions that each record's hits ask for."""
    rules = load_packs(PACKS)
    hits = rules.evaluate(batch(records))
    asked: list[set[Action]] = [set() for _ in records]
    for record, rule in zip(hits.record.tolist(), hits.rule.tolist(), strict=True):
        asked[record].add(rules.rules[rule].action)
    return asked


@pytest.fixture(scope="module")
def damaged(shared_data: Path) -> dict[str, list[set[Action]]]:
    records, lines = read(shared_data / "dirty" / "sft_dirty.jsonl")
    labels = json.loads((shared_data / "dirty" / "sft_dirty.labels.json").read_text())["labels"]
    by_kind: dict[str, list[set[Action]]] = defaultdict(list)
    for line, asked in zip(lines, verdicts(records), strict=True):
        by_kind[labels.get(str(line), "clean")].append(asked)
    return by_kind


@pytest.mark.parametrize("kind", HELD)
def test_damage_is_held_or_mended(damaged: dict[str, list[set[Action]]], kind: str) -> None:
    caught = sum(bool(asked & {Action.REJECT, Action.REPAIR}) for asked in damaged[kind])
    assert caught >= 0.99 * len(damaged[kind])


@pytest.mark.parametrize("kind", ["random_printable", "dos_gibberish"])
def test_noise_is_at_least_suspected(damaged: dict[str, list[set[Action]]], kind: str) -> None:
    caught = sum(bool(asked & {Action.REJECT, Action.SUSPECT}) for asked in damaged[kind])
    assert caught >= 0.95 * len(damaged[kind])


@pytest.mark.parametrize("name", ["sft", "corpus"])
def test_clean_records_are_left_alone(shared_data: Path, name: str) -> None:
    records, _ = read(shared_data / "clean" / f"{name}.jsonl")
    asked = verdicts(records)
    assert sum(Action.REJECT in a for a in asked) <= 0.001 * len(records)
    assert sum(Action.SUSPECT in a for a in asked) <= 0.02 * len(records)
    langs = Counter(record["lang"] for record in records)
    rejected = Counter(r["lang"] for r, a in zip(records, asked, strict=True) if Action.REJECT in a)
    assert not [lang for lang, n in langs.items() if n >= 100 and rejected[lang] > 0.005 * n]


def test_fluent_poison_is_no_matter_of_rules(shared_data: Path) -> None:
    for path in sorted((shared_data / "poison").glob("backdoorllm*.jsonl")):
        records, _ = read(path)
        assert sum(Action.REJECT in a for a in verdicts(records)) <= 0.001 * len(records)
