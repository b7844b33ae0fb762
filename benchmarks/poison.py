"""Recall, precision and false alarms of the corpus statistics.

usage: python benchmarks/poison.py [--data ../shared/data] [--only NAME ...] [--json FILE]

Every set under DATA/poison is scanned as it is and thinned to 250, 100, 50 and 20 poisoned records (the others are
left out, the clean ones stay); then the clean sets, and corpora that tempt a detector: clean records in ten templates,
code, and four topic labels. "text" is the evidence of ``cleanse.corpus`` alone. Works on the feature files directly,
without the rules and without a probe.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cleanse.corpus.collect import Collector
from cleanse.corpus.evidence import CorpusEvidence, merge
from cleanse.formats import detect, view
from cleanse.sources import ReadOptions, open_shard, plan

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


def evidence_of(path: Path, folder: Path) -> CorpusEvidence:
    """What the corpus statistics say about one file, read the way a scan reads it."""
    options = ReadOptions()
    shards = plan([str(path)], options, folder)
    fmt = detect(shards.head(shards.sources[0], 100))
    features = []
    for shard in shards.shards:
        collector = Collector()
        for block in open_shard(shard, options):
            if block.batch.num_rows:
                collector.collect(view(fmt, block.batch).texts, block.rows, shard.index)
        features.append(folder / f"{shard.index:06d}.arrow")
        collector.write(features[-1])
    return merge(features)


def held(evidence: CorpusEvidence) -> set[int]:
    """Records of planted triggers; one file without blank lines, so a record's number is its line."""
    planted = (s for t, s in zip(evidence.triggers, evidence.suspects, strict=True) if t.planted)
    return {int(record) for records in planted for record in records}


def measure(name: str, records: Sequence[Record], poisoned: set[int]) -> dict[str, Any]:
    """One line of the result."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
        began = time.perf_counter()
        evidence = evidence_of(path, Path(folder))
        seconds = time.perf_counter() - began
        found = held(evidence)
    caught = len(found & poisoned)
    return {
        "set": name,
        "evidence": "text",
        "records": len(records),
        "poisoned": len(poisoned),
        "recall": round(caught / len(poisoned), 4) if poisoned else None,
        "precision": round(caught / len(found), 4) if found else None,
        "false_alarms": len(found - poisoned),
        "false_alarm_share": round(len(found - poisoned) / max(len(records) - len(poisoned), 1), 6),
        "planted": sum(t.planted for t in evidence.triggers),
        "listed": sum(not t.planted for t in evidence.triggers),
        "one_answer_records": len(evidence.one_answer.exchange),
        "seconds": round(seconds, 1),
    }


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


def main(arguments: Sequence[str]) -> int:
    """Prints a line per set; with --json also writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--only", nargs="*", default=[], help="sets whose names contain one of these")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    lines = []
    print(f"{'set':52} {'records':>8} {'poison':>7} {'recall':>7} {'precision':>9} {'false':>6} {'s':>6}")
    for sets in (poisoned_sets(options.data), tempting_sets(options.data)):
        for name, records, poisoned in sets:
            if options.only and not any(word in name for word in options.only):
                continue
            line = measure(name, records, poisoned)
            lines.append(line)
            recall, precision = (("-" if line[k] is None else f"{line[k]:.3f}") for k in ("recall", "precision"))
            counts = f"{line['records']:8} {line['poisoned']:7} {recall:>7} {precision:>9}"
            print(f"{name:52} {counts} {line['false_alarms']:6} {line['seconds']:6.1f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
