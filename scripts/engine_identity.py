"""Scans every set of a folder on this machine and on Ray clusters, and compares every output byte.

usage: python -m scripts.engine_identity DATA [--nodes 1 2 3] [--shard-bytes 1MB] [--work DIR] [SCAN OPTIONS...]

DATA is a file, or a folder whose data files are scanned one by one. The scan has its default settings: rules, corpus
statistics, probe. The reference is the local engine with two workers; the clusters have nodes of one processor each,
all on this machine. Prints one line per set and number of nodes as they end; ends with 0 where all bytes are the same.
What lies in the folder of --work is kept, and scans that it holds already are not made again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.kill_test import digest
from scripts.local_cluster import cluster, grow

_DATA = (".jsonl", ".jsonl.zst", ".json.gz", ".jsonl.gz", ".parquet", ".csv", ".arrow")


def sets(data: Path) -> list[Path]:
    """The data files of a folder, by size; a file itself."""
    if data.is_file():
        return [data]
    found = [path for path in data.rglob("*") if path.name.endswith(_DATA)]
    return sorted(found, key=lambda path: path.stat().st_size)


def scanned(path: Path, out: Path, options: Sequence[str]) -> tuple[dict[str, str], float]:
    """The digests of a scan's output, and its seconds. Raises CalledProcessError when it fails."""
    command = [sys.executable, "-m", "cleanse", "scan", str(path), "-o", str(out), "--quiet", *options]
    began = time.monotonic()
    subprocess.run(command, check=True)  # noqa: S603 - our own command
    return digest(out), time.monotonic() - began


def compared(path: Path, work: Path, n_nodes: Sequence[int], options: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """For every engine a line to print, and the files that differ."""
    reference, seconds = scanned(path, work / f"{path.name}-local", ["--workers", "2", *options])
    yield f"{path.name:46} local    {seconds:7.1f} s  {len(reference)} files", []
    with cluster(1) as made:
        for n in sorted(n_nodes):
            grow(made, n)
            there = ["--engine", "ray", "--address", made.address]
            found, seconds = scanned(path, work / f"{path.name}-{n}", [*there, *options])
            differing = sorted(name for name in {*found, *reference} if found.get(name) != reference.get(name))
            verdict = "differ: " + ", ".join(differing) if differing else "the same bytes"
            yield f"{path.name:46} {n} node{'s' * (n > 1):1}  {seconds:7.1f} s  {verdict}", differing


def main() -> None:
    """Parses the command line and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--shard-bytes", default="1MB")
    parser.add_argument("--work", type=Path)
    arguments, more = parser.parse_known_args()
    options = ["--shard-bytes", arguments.shard_bytes, *more]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in sets(arguments.data):
            for line, differing in compared(path, arguments.work or Path(folder), arguments.nodes, options):
                print(line, flush=True)
                bad += bool(differing)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
