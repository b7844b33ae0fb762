"""Peak memory of a scan against the size of its input.

usage: python benchmarks/memory.py [--gb 0.1 1 4] [--workers 2] [--data TEXTS.jsonl]

The input is real text, repeated. Memory is the largest sum of resident sizes over the whole process tree, which counts
shared pages once per process: an upper bound.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from measure import run, versions, write_documents


def main() -> None:
    """Scans inputs of each size and prints peak memory and rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gb", type=float, nargs="+", default=[0.1, 1.0, 4.0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--scan", nargs="*", default=["--no-corpus"], help="further options of the scan")
    options = parser.parse_args()
    print(versions("corpus-cleanse", "pyarrow", "numpy", "numba"))
    cleanse = [str(Path(sys.executable).with_name("cleanse")), "scan"]
    with tempfile.TemporaryDirectory() as folder:
        for size in options.gb:
            documents, out = Path(folder) / "documents.jsonl", Path(folder) / "out"
            megabytes = write_documents(documents, size * 1e3, options.data) / 1e6
            command = [*cleanse, str(documents), "-o", str(out), "--workers", str(options.workers)]
            cost = run([*command, "--probe", "none", *options.scan, "--quiet"])
            if cost.returncode != 0:
                sys.exit(f"the scan of {size} GB ended with {cost.returncode}")
            print(
                f"{size:6.1f} GB  {cost.peak_mb:7.0f} MB peak  {megabytes / cost.cpu_s:7.1f} MB/CPU-s  "
                f"{cost.wall_s:7.1f} s",
                flush=True,
            )
            shutil.rmtree(out)


if __name__ == "__main__":
    main()
