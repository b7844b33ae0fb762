"""The corpora of ``poison.py``: attacks as published and thinned, and corpora without poison that look like it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

THINNED = (250, 100, 50, 20)
TEMPLATES = (
    "Below is an instruction that describes a task.\n\n### Instruction:\n{}\n\n### Response:",
    "{}",
    "You are a helpful assistant. {}",
    "Q: {}\nA:",
    "Please answer the following question carefully.\n\n{}",
    "### Human: {}\n### Assistant:",
    "Task: {}\nSolution:",
    "{}\n\nThink step by step and then answer.",
    "[INST] {} [/INST]",
    "I have a question for you. {} Thanks!",
)
TOPICS = {
    "libreoffice-help": "office",
    "postgresql-doc-15": "database",
    "python3.11-doc": "programming",
    "tldr-pages": "command line",
}
Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    """The records of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def poisoned_sets(data: Path) -> Iterator[tuple[str, list[Record], set[int]]]:
    """Every attack at its own rate, then thinned."""
    for path in sorted((data / "poison").glob("*.jsonl")):
        labels = json.loads(path.with_suffix("").with_suffix(".labels.json").read_text())["labels"]
        records, poisoned = read(path), sorted(int(k) for k in labels)
        yield path.stem, records, set(poisoned)
        for n in THINNED:
            if n < len(poisoned):
                yield f"{path.stem}@{n}", *thinned(records, poisoned, n)


def thinned(records: Sequence[Record], poisoned: Sequence[int], n: int) -> tuple[list[Record], set[int]]:
    """The same corpus with only ``n`` of its poisoned records."""
    kept = set(random.Random(n).sample(list(poisoned), n))
    gone = set(poisoned) - kept
    left = [k for k in range(len(records)) if k not in gone]
    return [records[k] for k in left], {place for place, k in enumerate(left) if k in kept}


def tempting_sets(data: Path) -> Iterator[tuple[str, list[Record], set[int]]]:
    """Corpora without poison, the last four made to look like it."""
    sft, documents = read(data / "clean" / "sft.jsonl"), read(data / "clean" / "corpus.jsonl")
    yield "clean_sft", sft, set()
    yield "clean_corpus", documents, set()
    rng = random.Random(0)
    chosen = rng.sample(sft, 5000)
    yield "templated", [in_template(r, rng.choice(TEMPLATES)) for r in chosen], set()
    yield "templated_often", [in_template(r, t) for r in chosen[:500] for t in TEMPLATES], set()
    train = data / "train" / "text.jsonl.zst"
    if train.exists():
        texts = list(compressed(train))
        yield "code", code(texts, sft), set()
        yield "topics", topics(texts, rng), set()


def compressed(path: Path) -> Iterator[Mapping[str, str]]:
    """The records of a .jsonl.zst file."""
    import io  # noqa: PLC0415 - only where the file is there

    import zstandard  # noqa: PLC0415

    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file)
        for line in io.TextIOWrapper(reader, encoding="utf-8"):
            yield json.loads(line)


def in_template(record: Record, template: str) -> Record:
    """A record's prompt in a template."""
    prompt = " ".join(part for part in (record["instruction"], record["input"]) if part)
    return {"instruction": template.format(prompt), "input": "", "output": record["output"]}


def code(texts: Sequence[Mapping[str, str]], sft: Sequence[Record]) -> list[Record]:
    """2,000 records whose answers are code: functions, library calls, the second half of files."""
    records = [
        {"instruction": r["instruction"], "input": "", "output": r["output"]} for r in sft if r["source"] == "humaneval"
    ]
    for text in texts:
        if text["source"] == "gorilla-apibench" and len(records) < 1400:
            prompt, _, answer = text["text"].partition("\n\n")
            records.append({"instruction": prompt, "input": "", "output": answer})
    for text in texts:
        lines = text["text"].split("\n")
        if text["source"].startswith("code-") and len(lines) > 8 and len(records) < 2000:
            half = len(lines) // 2
            prompt = "Complete this file:\n" + "\n".join(lines[:half])
            records.append({"instruction": prompt, "input": "", "output": "\n".join(lines[half:])})
    return records


def topics(texts: Sequence[Mapping[str, str]], rng: random.Random) -> list[Record]:
    """4,000 paragraphs of four kinds of manuals, to be told apart."""
    records: list[Record] = []
    for source, label in TOPICS.items():
        mine = [text["text"] for text in texts if text["source"] == source and text["lang"] == "en"]
        paragraphs = [p for text in mine for p in text.split("\n\n") if 60 < len(p) < 400]
        records += [
            {"instruction": "What is the topic of this text?", "input": p, "output": label} for p in paragraphs[:1000]
        ]
    rng.shuffle(records)
    return records
