"""Peak memory and outcome of scans of files that are extreme in one way.

usage: python benchmarks/extremes.py [--only NAME ...] [--keep DIR]

Cases: a JSON record of 200 MB, a line of 1 GB without a newline, a gzip file that unfolds to 4 GB of one line, and a
file of 1,000,000 empty lines. Each is scanned with default settings, but for the probe. Every record read must end in
clean or quarantine; a file without a record must say so. Memory is the largest sum of resident sizes over the process
tree.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measure import run, versions

_MB = 1 << 20
_NO_RECORDS = 3


def _one_record(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b'{"text": "before"}\n{"text": "')
        for _ in range(200):
            file.write(b"word and " * (_MB // 9))
        file.write(b'"}\n{"text": "after"}\n')


def _one_line(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(1024):
            file.write(b"x" * _MB)


def _bomb(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(4096):
            file.write(b"\0" * _MB)


def _blank_lines(path: Path) -> None:
    path.write_bytes(b"\n" * 1_000_000)


CASES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "record": ("record.jsonl", _one_record),
    "line": ("line.jsonl", _one_line),
    "bomb": ("bomb.jsonl.gz", _bomb),
    "blank": ("blank.jsonl", _blank_lines),
}


def main() -> None:
    """Makes each file, scans it, prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(CASES), default=sorted(CASES))
    options = parser.parse_args()
    print(versions("corpus-cleanse", "pyarrow"))
    cleanse = [str(Path(sys.executable).with_name("cleanse")), "scan"]
    for name in options.only:
        file_name, make = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder) / file_name, Path(folder) / "out"
            make(source)
            size = source.stat().st_size / 1e6
            cost = run([*cleanse, str(source), "-o", str(out), "--probe", "none", "--quiet"])
            if cost.returncode not in {0, _NO_RECORDS}:
                sys.exit(f"{name}: the scan ended with {cost.returncode}")
            print(
                f"{name:8} {size:8.1f} MB  exit {cost.returncode}  {cost.peak_mb:6.0f} MB peak  "
                f"{cost.cpu_s:6.1f} CPU-s  {_outcome(out)}",
                flush=True,
            )
            shutil.rmtree(out, ignore_errors=True)


def _outcome(out: Path) -> str:
    summary = out / "summary.json"
    if not summary.exists():
        return "no records"
    told = json.loads(summary.read_text("utf-8"))
    rules = ", ".join(sorted(told["rules"]))
    told |= told["counts"]
    assert told["read"] == told["clean"] + told["quarantined"]
    return f"read {told['read']} = clean {told['clean']} + quarantined {told['quarantined']}: {rules}"


if __name__ == "__main__":
    main()
