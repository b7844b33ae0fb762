"""What token checks cost and how far off their counts are, beside encoding everything, in one process.

Usage: python benchmarks/token_checks.py DATA.jsonl TOKENIZER [--megabytes 8] [--max-length 4096]
Prints MB per CPU-second of ``encode_batch_fast``, of all rules with and without the tokenizer, and the error of
the counts by language where records have a "lang".
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # CPU time of one thread, as in a scan's worker

import numpy as np
import orjson
import pyarrow as pa

from cleanse.formats import detect, view
from cleanse.rulepacks import load_packs
from cleanse.trainer_view import TokenContext, TrainerSettings
from cleanse.trainer_view.words import WordCounter

BLOCK = 4 << 20


def blocks_of(path: Path, megabytes: float) -> list[list[dict[str, str]]]:
    """The first records of a JSONL file with about so much text, in blocks like those of a scan."""
    blocks: list[list[dict[str, str]]] = [[]]
    total = here = 0
    with path.open("rb") as file:
        for line in file:
            row = orjson.loads(line)
            blocks[-1].append({"text": row["text"], "lang": row.get("lang", "")})
            total, here = total + len(row["text"].encode()), here + len(line)
            if total > megabytes * 1e6:
                break
            if here > BLOCK:
                blocks.append([])
                here = 0
    return blocks


def main() -> None:
    """Runs the benchmark and prints one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("tokenizer")
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--max-length", type=int, default=4096)
    given = parser.parse_args()
    blocks = blocks_of(given.data, given.megabytes)
    texts = [row["text"] for block in blocks for row in block]
    size = sum(len(text.encode()) for text in texts) / 1e6
    context = TokenContext.load(given.tokenizer, TrainerSettings.of(max_length=given.max_length))
    rules = load_packs()
    fmt = detect(blocks[0][:50])
    batches = [pa.RecordBatch.from_pylist(block) for block in blocks]
    warm = view(fmt, batches[0].slice(0, 20))
    context.attach(warm.texts)
    rules.evaluate(warm.texts)  # compiles the kernels
    context.counter = WordCounter(context.loaded)

    plain = checked = everything = 0.0
    exact: list[int] = []
    for block, batch in zip(blocks, batches, strict=True):  # in turn, so that a busy machine is unfair to none
        start = time.process_time()
        rules.evaluate(view(fmt, batch).texts)
        plain += time.process_time() - start
        start = time.process_time()
        seen = view(fmt, batch)
        context.attach(seen.texts)
        rules.evaluate(seen.texts)
        checked += time.process_time() - start
        start = time.process_time()
        some = [row["text"] for row in block]
        encoded = context.loaded.tokenizer.encode_batch_fast(some, add_special_tokens=False)
        everything += time.process_time() - start
        exact += [len(one.ids) for one in encoded]
    print(f"text: {size:.1f} MB in {len(texts)} records, {len(blocks)} blocks")
    print(f"encode_batch_fast: {size / everything:.2f} MB per CPU-second ({everything:.2f} s)")
    print(f"rules without tokenizer: {size / plain:.2f} MB per CPU-second ({plain:.2f} s)")
    print(f"rules with tokenizer: {size / checked:.2f} MB per CPU-second ({checked:.2f} s)")
    print(f"CPU time of rules with tokenizer over encoding everything: {checked / everything:.2f}")
    counted = np.concatenate([WordCounter(context.loaded).tally(view(fmt, b).texts).tokens for b in batches])
    true = np.array(exact)
    worst: dict[str, float] = defaultdict(float)
    for row, off in zip(
        (row for block in blocks for row in block), np.abs(counted - true) / np.maximum(true, 1), strict=True
    ):
        worst[row["lang"]] = max(worst[row["lang"]], float(off))
    print(f"counts: {np.abs(counted - true).sum() / true.sum():.4%} off in all, worst record by language:")
    for language, off in sorted(worst.items(), key=lambda item: -item[1])[:8]:
        print(f"  {language or '?'}: {off:.2%}")


if __name__ == "__main__":
    main()
