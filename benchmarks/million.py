"""Time and memory of a scan that compares a million records with each other.

usage: python benchmarks/million.py [--records 1000000] [--workers 2] [--data ../shared/data] [--scan --probe none]

The records are real instructions, over and over, each copy with a fifth of its words exchanged for words of other
records of its language, so that the copies are different records and not near copies of each other. A hundred real
poisoned ones lie among them: how many of these the scan quarantines is printed beside time and memory.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measure import SHARED, run, versions
from poison_sets import Record, read

EXCHANGED = 0.2
POISON = "poison/backdoorllm_refusal_badnet_100in5k.jsonl"


def varied(text: str, words: Sequence[str], rng: random.Random) -> str:
    """The text with a fifth of its words exchanged; characters take the place of words where no spaces are."""
    parts, space = (text.split(" "), " ") if " " in text else (list(text), "")
    return space.join(rng.choice(words) if rng.random() < EXCHANGED else part for part in parts)


def write(path: Path, n_records: int, data: Path) -> set[int]:
    """Writes the corpus; returns the rows of the poisoned records."""
    rng = random.Random(0)
    clean = read(data / "clean/sft.jsonl")
    by_language: dict[str, list[str]] = {}
    for record in clean:
        text = f"{record['instruction']} {record['output']}"
        by_language.setdefault(str(record["lang"]), []).extend(text.split(" ") if " " in text else text)
    poisoned = read(data / POISON)
    labels = json.loads((data / POISON).with_suffix(".labels.json").read_text("utf-8"))["labels"]
    planted = [poisoned[int(row)] for row in sorted(labels, key=int)]
    at = dict(zip(sorted(rng.sample(range(n_records), len(planted))), planted, strict=True))
    with path.open("w", encoding="utf-8") as file:
        for row in range(n_records):
            file.write(json.dumps(at.get(row) or _copy(clean[row % len(clean)], by_language, rng), ensure_ascii=False))
            file.write("\n")
    return set(at)


def _copy(record: Record, by_language: dict[str, list[str]], rng: random.Random) -> Record:
    words = by_language[str(record["lang"])]
    names = ("instruction", "input", "output")
    return {**record, **{name: varied(str(record.get(name) or ""), words, rng) for name in names}}


def main() -> None:
    """Writes the corpus, scans it, and prints what that cost and what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", type=Path, default=SHARED / "data")
    parser.add_argument("--work", type=Path, help="folder to keep the corpus and the output in")
    parser.add_argument("--scan", nargs=argparse.REMAINDER, default=[], help="further options of the scan, the last")
    options = parser.parse_args()
    print(versions("corpus-cleanse", "pyarrow", "numpy", "numba", "rensa"))
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        corpus, out = Path(folder) / "records.jsonl", Path(options.work or folder) / f"out-{options.records}"
        poisoned = write(corpus, options.records, options.data)
        cleanse = [str(Path(sys.executable).with_name("cleanse")), "scan", str(corpus), "-o", str(out)]
        cost = run([*cleanse, "--workers", str(options.workers), "--quiet", *options.scan])
        if cost.returncode != 0:
            sys.exit(f"the scan ended with {cost.returncode}")
        summary = json.loads((out / "summary.json").read_text("utf-8"))
        print(
            f"{options.records:,} records, {corpus.stat().st_size / 1e6:.0f} MB: {cost.wall_s / 60:.1f} minutes, "
            f"{cost.cpu_s:.0f} CPU-s, {cost.peak_mb:.0f} MB peak"
        )
        print("seconds", summary["seconds"])
        print({k: v for k, v in summary["evidence"]["corpus"].items() if k != "triggers"})
        print("quarantined by rule:", {r: t["quarantined"] for r, t in summary["rules"].items() if t["quarantined"]})
        print("planted:", len(poisoned), "found:", _found(out, poisoned))


def _found(out: Path, poisoned: set[int]) -> int:
    import pyarrow.parquet as pq  # noqa: PLC0415 - after the scan, which is measured

    found = pq.read_table(out / "findings.parquet", columns=["row", "rule"], filters=[("action", "=", "reject")])
    return len(poisoned & set(found.column("row").to_pylist()))


if __name__ == "__main__":
    main()
