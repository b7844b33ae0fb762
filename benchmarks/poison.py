"""Recall, precision and false alarms of the corpus statistics, of a model's word, and of both.

usage: python benchmarks/poison.py [--evidence KIND ...] [--data ../shared/data] [--only NAME ...] [--json FILE]

Every set under DATA/poison is scanned as it is and thinned to 250, 100, 50 and 20 poisoned records (the others are
left out, the clean ones stay); then the clean sets, and corpora that tempt a detector: clean records in ten templates,
code, and four topic labels. Works on the feature files directly, without the rules. KIND is

* ``text``: what the statistics of ``cleanse.corpus`` convict alone;
* ``both``: what they and the embedded model convict together, as in a scan with a probe;
* ``reading``: any phrase among the first 32 candidates without which the model reads on better, whatever else is said;
* ``gradient``: any of those whose answers' gradients are more alike than chance (p at most 0.001) among equal answers.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from poison_sets import Record, poisoned_sets, tempting_sets

from cleanse.corpus.collect import Collector
from cleanse.corpus.evidence import CorpusEvidence, merge
from cleanse.corpus.exchanges import PROMPT_ROLES
from cleanse.corpus.hearing import LIMIT_P, MOST_HEARD, Hearing
from cleanse.corpus.questions import MOST_ALIKE, drawn_for, open_questions
from cleanse.formats import detect, view
from cleanse.probing.backends import Probe, backend
from cleanse.probing.measure import open_probe
from cleanse.probing.phrase_readings import Segments, ask
from cleanse.probing.settings import ProbeSettings
from cleanse.sources import ReadOptions, open_shard, plan

KINDS = ("text", "both", "reading", "gradient")


@dataclass(frozen=True)
class Corpus:
    """One file as the scan sees it: its evidence, and every record's segments and which of them are prompts."""

    evidence: CorpusEvidence
    segments: list[Segments]
    asks: list[list[bool]]


def read_corpus(path: Path, folder: Path) -> Corpus:
    """What the corpus statistics say about one file without blank lines, read the way a scan reads it."""
    options = ReadOptions()
    shards = plan([str(path)], options, folder)
    fmt = detect(shards.head(shards.sources[0], 100))
    features: list[Path] = []
    segments: list[Segments] = []
    asks: list[list[bool]] = []
    for shard in shards.shards:
        collector = Collector()
        for block in open_shard(shard, options):
            if block.batch.num_rows:
                texts = view(fmt, block.batch).texts
                collector.collect(texts, block.rows, shard.index)
                bounds = np.searchsorted(texts.record, np.arange(texts.n_records + 1)).tolist()
                prompt = np.isin(texts.role, PROMPT_ROLES)
                for start, stop in pairwise(bounds):
                    segments.append([(texts.text(i), bool(texts.supervised[i])) for i in range(start, stop)])
                    asks.append(prompt[start:stop].tolist())
        features.append(folder / f"{shard.index:06d}.arrow")
        collector.write(features[-1])
    return Corpus(merge(features), segments, asks)


@lru_cache(maxsize=1)
def probe() -> Probe:
    """The embedded model."""
    return open_probe(ProbeSettings(device="cpu"))


def hearings(corpus: Corpus, asked: Sequence[int]) -> dict[int, Hearing]:
    """The model's word on these candidates, asked as a scan asks."""
    heard = {}
    for k in asked:
        suspects, fellows = drawn_for(corpus.evidence, k)
        prompts = [
            [text for (text, _), asks in zip(corpus.segments[r], corpus.asks[r], strict=True) if asks] for r in suspects
        ]
        heard[k] = ask(
            probe(),
            backend("torch").ProbeOptions,
            corpus.evidence.triggers[k].phrases[0],
            prompts,
            [corpus.segments[r] for r in suspects[:MOST_ALIKE]],
            [corpus.segments[r] for r in fellows],
        )
    return heard


def planted(evidence: CorpusEvidence) -> set[int]:
    """Records of planted triggers."""
    return _records(evidence, [k for k, t in enumerate(evidence.triggers) if t.planted])


def _records(evidence: CorpusEvidence, convicted: Sequence[int]) -> set[int]:
    return {int(record) for k in convicted for record in evidence.suspects[k]}


def convicted(corpus: Corpus, kinds: Sequence[str]) -> Mapping[str, set[int]]:
    """Records that each kind of evidence convicts."""
    evidence = corpus.evidence
    found: dict[str, Callable[[], set[int]]] = {"text": lambda: planted(evidence)}
    found["both"] = lambda: planted(evidence.with_hearings(hearings(corpus, open_questions(evidence))))
    if {"reading", "gradient"} & set(kinds):
        everyone = hearings(corpus, range(min(MOST_HEARD, len(evidence.triggers))))
        found["reading"] = lambda: _records(evidence, [k for k, h in everyone.items() if h.agrees])
        found["gradient"] = lambda: _records(evidence, [k for k, h in everyone.items() if h.alike_p <= LIMIT_P])
    return {kind: found[kind]() for kind in kinds}


def measure(name: str, records: Sequence[Record], poisoned: set[int], kinds: Sequence[str]) -> list[dict[str, Any]]:
    """One line of the result per kind of evidence."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
        began = time.perf_counter()
        corpus = read_corpus(path, Path(folder))
        by_kind = convicted(corpus, kinds)
        seconds = time.perf_counter() - began
        triggers = corpus.evidence.triggers
    return [
        {
            "set": name,
            "evidence": kind,
            "records": len(records),
            "poisoned": len(poisoned),
            "recall": round(len(found & poisoned) / len(poisoned), 4) if poisoned else None,
            "precision": round(len(found & poisoned) / len(found), 4) if found else None,
            "false_alarms": len(found - poisoned),
            "false_alarm_share": round(len(found - poisoned) / max(len(records) - len(poisoned), 1), 6),
            "planted": sum(t.planted for t in triggers),
            "listed": sum(not t.planted for t in triggers),
            "asked": len(open_questions(corpus.evidence)),
            "one_answer_records": len(corpus.evidence.one_answer.exchange),
            "seconds": round(seconds, 1),
        }
        for kind, found in by_kind.items()
    ]


def main(arguments: Sequence[str]) -> int:
    """Prints a line per set and kind of evidence; with --json also writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--evidence", nargs="+", choices=KINDS, default=["text"], metavar="KIND")
    parser.add_argument("--only", nargs="*", default=[], help="sets whose names contain one of these")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    lines = []
    columns = f"{'records':>8} {'poison':>7} {'recall':>7} {'precision':>9} {'false':>6} {'asked':>6} {'s':>6}"
    print(f"{'set':46} {'evidence':8} {columns}")
    for sets in (poisoned_sets(options.data), tempting_sets(options.data)):
        for name, records, poisoned in sets:
            if options.only and not any(word in name for word in options.only):
                continue
            for line in measure(name, records, poisoned, options.evidence):
                lines.append(line)
                recall, precision = (("-" if line[k] is None else f"{line[k]:.3f}") for k in ("recall", "precision"))
                counts = f"{line['records']:8} {line['poisoned']:7} {recall:>7} {precision:>9}"
                rest = f"{line['false_alarms']:6} {line['asked']:6} {line['seconds']:6.1f}"
                print(f"{name:46} {line['evidence']:8} {counts} {rest}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(lines, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
