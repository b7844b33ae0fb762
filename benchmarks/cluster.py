"""What Ray costs beside worker processes on the same machine, and whether the process that sends the jobs stays small.

usage: python benchmarks/cluster.py [--size 1] [--workers 2] [--rounds 1] [--memory 0.1 4] [--data TEXTS.jsonl]
                                    [SCAN OPTIONS...]

The same scan (SCAN OPTIONS, by default `--probe none`: rules and corpus statistics) of the same documents by
`--engine local` and by `--engine ray` with a Ray of its own, in turn; its start counts. Sizes are in GB. The documents
are real text, repeated; every repetition is cut in two at another word and put together the other way round, so that no
two are equal. Then scans of each size in `--memory` with Ray: the largest resident size of the main process alone.
`--size 0` and an empty `--memory` leave a part out.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from measure import Cost, real_texts, run, versions


def write_varied(out: Path, megabytes: float, data: Path | None = None) -> float:
    """Writes that many megabytes of JSON lines. Returns the megabytes written."""
    chance = random.Random(0)
    written, wanted = 0, int(megabytes * 1e6)
    with out.open("wb") as file:
        while written < wanted:
            for text in real_texts(data):
                words = text.split(" ")
                cut = chance.randrange(len(words))
                varied = " ".join(words[cut:] + words[:cut])
                written += file.write(json.dumps({"text": varied}, ensure_ascii=False).encode() + b"\n")
                if written >= wanted:
                    break
            if not written:
                sys.exit("the data holds no text at all")
    return written / 1e6


def scan(documents: Path, out: Path, workers: int, more: list[str]) -> Cost:
    """One scan, whose output is removed again."""
    command = [str(Path(sys.executable).with_name("cleanse")), "scan", str(documents), "-o", str(out)]
    cost = run([*command, "--workers", str(workers), "--quiet", *more])
    if cost.returncode != 0:
        sys.exit(f"cleanse scan {' '.join(more)} ended with {cost.returncode}")
    shutil.rmtree(out)
    return cost


def overhead(work: Path, options: argparse.Namespace) -> None:
    """Both engines in turn, and the ratio of their best times."""
    documents = work / "documents.jsonl"
    megabytes = write_varied(documents, options.size * 1e3, options.data)
    seconds: dict[str, list[float]] = {"local": [], "ray": []}
    for _ in range(options.rounds):
        for engine, taken in seconds.items():
            cost = scan(documents, work / "out", options.workers, ["--engine", engine, *options.scan])
            taken.append(cost.wall_s)
            print(
                f"{engine:6} {megabytes:7.0f} MB  {cost.wall_s:7.1f} s  {megabytes / cost.wall_s:6.1f} MB/s  "
                f"main process {cost.own_mb:5.0f} MB  process tree {cost.peak_mb:5.0f} MB",
                flush=True,
            )
    print(f"ray takes {min(seconds['ray']) / min(seconds['local']):.2f} times as long as local")


def memory(work: Path, options: argparse.Namespace) -> None:
    """The main process with Ray, against the size of the input."""
    documents = work / "documents.jsonl"
    for gigabytes in options.memory:
        write_varied(documents, gigabytes * 1e3, options.data)
        cost = scan(documents, work / "out", options.workers, ["--engine", "ray", *options.scan])
        print(f"ray {gigabytes:5.1f} GB  main process {cost.own_mb:5.0f} MB  {cost.wall_s:7.1f} s", flush=True)


def main() -> None:
    """Runs both parts and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--memory", type=float, nargs="*", default=[0.1, 4.0])
    parser.add_argument("--data", type=Path)
    options, more = parser.parse_known_args()
    options.scan = more or ["--probe", "none"]
    print(versions("corpus-cleanse", "ray", "pyarrow", "numpy", "numba"))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_varied(work / "warm.jsonl", 0.1, options.data)
        scan(work / "warm.jsonl", work / "out", 1, options.scan)  # compiles the kernels, once per installation
        if options.size:
            overhead(work, options)
        memory(work, options)


if __name__ == "__main__":
    main()
