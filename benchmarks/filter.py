"""Speed of `ds.filter(cleanse.Filter(), batched=True)` beside `cleanse scan --workers 1` on the same data.

usage: python benchmarks/filter.py [--mb 24] [--data TEXTS.jsonl] [--turns 3]

Both read the same documents as a folder that `save_to_disk` wrote, in a process of their own, with kernels compiled
beforehand. The scan does without probe and without looking across records (`--probe none --no-corpus`), as the filter
does. Legs take turns; the best of each counts. The filter's leg is the whole program (imports, rules, filter, cache);
megabytes (10^6 bytes) are of the JSON lines that the documents come from.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from datasets import Dataset
from measure import Cost, run, versions, write_documents

FILTER = """
import sys
import datasets
import cleanse
kept = datasets.load_from_disk(sys.argv[1]).filter(cleanse.Filter(), batched=True, cache_file_name=sys.argv[2])
print(len(kept))
"""


def main() -> None:
    """Runs both legs in turns and prints the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mb", type=float, default=24)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    print(versions("corpus-cleanse", "datasets", "pyarrow", "numpy", "numba"))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        megabytes = write_documents(work / "documents.jsonl", options.mb, options.data) / 1e6
        data = Dataset.from_json(str(work / "documents.jsonl"), cache_dir=str(work / "cache"))
        data.save_to_disk(str(work / "data"))
        print(f"{len(data):,} records, {megabytes:.1f} MB")
        cleanse = [str(Path(sys.executable).with_name("cleanse")), "scan", str(work / "data"), "--workers", "1"]
        scan = [*cleanse, "--probe", "none", "--no-corpus", "--quiet", "-o"]
        run([*scan, str(work / "warm")])  # compiles the kernels, once per installation
        scans: list[Cost] = []
        filters: list[Cost] = []
        for turn in range(options.turns):
            scans.append(run([*scan, str(work / f"out{turn}")]))
            filters.append(run([sys.executable, "-c", FILTER, str(work / "data"), str(work / f"kept{turn}.arrow")]))
        if any(cost.returncode for cost in [*scans, *filters]):
            sys.exit("a leg failed")
    best = {name: min(costs, key=lambda c: c.wall_s) for name, costs in (("scan", scans), ("filter", filters))}
    for name, cost in best.items():
        rate = megabytes / cost.wall_s
        print(f"{name:8} {rate:8.2f} MB/s {cost.wall_s:8.2f} s {cost.cpu_s:8.2f} CPU-s {cost.peak_mb:7.0f} MB peak")
    print(f"the filter's throughput is {best['scan'].wall_s / best['filter'].wall_s:.2f} of the scan's")


if __name__ == "__main__":
    main()
