"""Filter beside scan: the same verdict for every record of the evaluation data?

usage: python benchmarks/agreement.py [--data FOLDER] [--limit RECORDS]

Every JSON Lines file below the folder is scanned (`--probe none --no-corpus`: what looks across records is no matter
of one batch). The records that could be parsed then go through `cleanse.Filter`: as a memory-mapped dataset, the same
with the format told anew for every batch, with two processes, streamed as Python values, and with suspects held too.
A record counts as disputed when one of them and the scan do not agree about it. Lines that are no records cannot be
in a dataset: the scan holds them all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, IterableDataset
from measure import SHARED
from numpy.typing import NDArray

import cleanse
from cleanse.sources import ReadOptions, Types, open_shard, plan

ROW = "cleanse_test_row"


@dataclass(frozen=True)
class Disputed:
    """How many records were judged in each way, and how many of them differently from the scan."""

    records: int
    held: int
    suspected: int  # those held among them
    strays: int
    disputed: dict[str, int]


def parsed(path: Path, folder: Path) -> Path:
    """A Parquet file of the records that the scan's reader could parse, with their row numbers."""
    options = ReadOptions()
    (shards,) = [plan([str(path)], options, folder).shards]
    types = Types()
    for shard in shards:
        reader = open_shard(shard, options)
        for _ in reader:
            pass
        types = types.merge(reader.facts.types)
    tables, offset = [], 0
    for shard in shards:
        reader = open_shard(shard, options, types)
        for block in reader:
            table = pa.Table.from_batches([block.batch])
            tables.append(table.append_column(ROW, pa.array(block.rows + offset)))
        offset += reader.facts.n_records
    target = folder / "parsed.parquet"
    pq.write_table(pa.concat_tables(tables), target)
    return target


def compare(path: Path, folder: Path, limit: int | None = None) -> Disputed:
    """Scans a file and filters its records; see the module's words."""
    out = folder / "out"
    result = cleanse.scan(path, out, probe="none", corpus=False, workers=1)
    quarantine = result.load_quarantine()
    held = set(quarantine["cleanse_row"][:])
    strays = sum(raw is not None for raw in quarantine["cleanse_raw"][:])
    whole = Dataset.from_parquet(str(parsed(path, folder)), cache_dir=str(folder / "cache"))
    if limit is not None and limit < len(whole):
        # Every held record, and others up to the limit.
        rows = whole[ROW][:]
        chosen = [i for i, row in enumerate(rows) if row in held]
        chosen += [i for i, row in enumerate(rows) if row not in held][: max(0, limit - len(chosen))]
        whole = whole.select(sorted(chosen))
    rows = np.asarray(whole[ROW][:])
    wanted = np.isin(rows, list(held), invert=True)
    doubted = pq.read_table(out / "findings.parquet", filters=[("action", "in", ["reject", "suspect"])])
    unsuspected = np.isin(rows, doubted.column("row").to_numpy(), invert=True)
    marked = whole.remove_columns(ROW).add_column(ROW, np.arange(len(rows)))
    unpinned = cleanse.Filter()
    keeps = unpinned.like(marked)
    strict = cleanse.Filter(suspects="quarantine").like(marked)

    def disagreements(kept: list[int], wanted: NDArray[np.bool_] = wanted) -> int:
        mine = np.zeros(len(rows), np.bool_)
        mine[kept] = True
        return int((mine != wanted).sum())

    ways = {
        "filter": marked.filter(keeps, batched=True)[ROW][:],
        "formats told per batch": marked.filter(unpinned, batched=True)[ROW][:],
        "num_proc=2": marked.filter(keeps, batched=True, num_proc=2)[ROW][:],
        "streaming": [r[ROW] for r in stream(marked).filter(keeps, batched=True)],
    }
    disputed = {name: disagreements(kept) for name, kept in ways.items()}
    disputed["suspects held"] = disagreements(marked.filter(strict, batched=True)[ROW][:], unsuspected)
    return Disputed(len(rows), int((~wanted).sum()), int((~unsuspected).sum()), strays, disputed)


def stream(dataset: Dataset) -> IterableDataset:
    """The records one by one, as Python values."""

    def records() -> Iterator[dict[str, Any]]:
        yield from dataset

    return IterableDataset.from_generator(records)


def main() -> None:
    """Compares every set and ends with 1 when any record is disputed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED / "data")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    paths = sorted(options.data.rglob("*.jsonl*"))
    if not paths:
        sys.exit(f"no JSON Lines files below {options.data}")
    disputed = 0
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            found = compare(path, Path(folder), options.limit)
        disputed += sum(found.disputed.values())
        print(
            f"{path.name:44} {found.records:7,} records, {found.held:4,} held, {found.suspected:4,} suspected, "
            f"{found.strays:3,} strays; disputed: {found.disputed}",
            flush=True,
        )
    sys.exit(1 if disputed else 0)


if __name__ == "__main__":
    main()
