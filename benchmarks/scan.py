"""Speed of a rules-only scan, end to end, beside what people use now, on the same documents in one run.

usage: python benchmarks/scan.py [--mb 48] [--data TEXTS.jsonl] [--tokenizer tokenizer.json]

Legs: `cleanse scan --probe none --no-corpus` with one worker (read, rules, write); datatrove's Gopher repetition,
Gopher quality, C4 quality and FineWeb quality filters with reader and writer, installed from PyPI into an environment
of its own; `tokenizers.Tokenizer.encode_batch_fast` over the same texts. Megabytes are of the JSON lines read (10^6
bytes); start-up counts, compilation (once per installation) does not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import ROOT, Cost, run, versions, write_documents

DATATROVE = "datatrove[processing]==0.10.1"
CHAIN = """
import sys
from pathlib import Path
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.filters import (
    C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter)
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
if __name__ == "__main__":
    source, out = Path(sys.argv[1]), sys.argv[2]
    LocalPipelineExecutor([
        JsonlReader(str(source.parent), glob_pattern=source.name),
        GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter(), FineWebQualityFilter(),
        JsonlWriter(out + "/clean", compression=None),
    ], tasks=1, workers=1, logging_dir=out + "/logs").run()
"""
ENCODE = """
import sys, json
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[2])
batch = []
def flush():
    tokenizer.encode_batch_fast(batch, add_special_tokens=False)
    batch.clear()
with open(sys.argv[1], encoding="utf-8") as lines:
    for line in lines:
        batch.append(json.loads(line)["text"])
        if len(batch) == 1000:
            flush()
if batch:
    flush()
"""


def datatrove_python() -> Path:
    """The interpreter of an environment that holds datatrove, made when it is not there."""
    home = ROOT / ".venv-datatrove"
    python = home / "bin" / "python"
    if not (home / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", DATATROVE, "orjson", "spacy"], check=True)
        (home / ".installed").touch()
    return python


def show(name: str, megabytes: float, cost: Cost) -> float:
    """Prints one leg and returns its MB per CPU-second."""
    if cost.returncode != 0:
        sys.exit(f"{name} ended with {cost.returncode}")
    rate = megabytes / cost.cpu_s
    print(
        f"{name:34} {rate:9.2f} MB/CPU-s  {cost.cpu_s:8.1f} CPU-s  {cost.wall_s:8.1f} s  {cost.peak_mb:7.0f} MB peak",
        flush=True,
    )
    return rate


def main() -> None:
    """Runs the legs one after another and prints ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mb", type=float, default=48)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json for the encoding leg and a scan with its checks")
    parser.add_argument("--skip-datatrove", action="store_true")
    options = parser.parse_args()
    print(versions("corpus-cleanse", "pyarrow", "numpy", "numba", "tokenizers"), DATATROVE, sep=", ")
    cleanse = [str(Path(sys.executable).with_name("cleanse")), "scan"]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        documents = work / "documents.jsonl"
        megabytes = write_documents(documents, options.mb, options.data) / 1e6
        scan = [*cleanse, str(documents), "--workers", "1", "--probe", "none", "--no-corpus", "--quiet"]
        run([*scan, "-o", str(work / "warm")])  # compiles the kernels, once per installation
        ours = show("cleanse scan, rules only", megabytes, run([*scan, "-o", str(work / "rules")]))
        if options.tokenizer:
            (work / "encode.py").write_text(ENCODE)
            encode = [sys.executable, str(work / "encode.py"), str(documents), str(options.tokenizer)]
            encoding = show("tokenizers encode_batch_fast", megabytes, run(encode))
            checked = [*scan, "-o", str(work / "tokens"), "--tokenizer", str(options.tokenizer)]
            ours_tokens = show("cleanse scan, tokenizer checks", megabytes, run(checked))
            print(f"scan with tokenizer checks takes {encoding / ours_tokens:.2f} of the CPU time of encoding")
        if not options.skip_datatrove:
            (work / "chain.py").write_text(CHAIN)
            chain = [str(datatrove_python()), str(work / "chain.py"), str(documents), str(work / "trove")]
            theirs = show("datatrove Gopher+C4+FineWeb", megabytes, run(chain))
            print(f"rules-only scan: {ours / theirs:.0f} times the datatrove chain per CPU-second")


if __name__ == "__main__":
    main()
