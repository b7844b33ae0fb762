"""What the probe alone tells apart, and whether its budget holds.

usage: python benchmarks/detection.py [--data ../shared/data] [--model embedded] [--clean N] [--cache DIR] [--json FILE]

Every record goes through the model once, as ``--probe-scope all`` would have it; all judgements are then the scan's own
(``cleanse.probing.judge``), repeated with controls drawn by several seeds.

1. Every kind of damage in DATA/dirty/sft_dirty against its clean records: area under the curve, and recall where 1 %
   and 0.2 % of clean records are false alarms, all clean records being controls; then as a scan of suspects judges
   them, at the default budget, with the few controls that it draws.
2. DATA/clean: the share that is convicted, with every record on trial, and with a random twentieth on trial as
   suspects are; beside the interval that holds 95 % of the counts of records that are convicted by chance.
3. Two hundred batches for each kind, of 32 clean records and a damaged one, ranked by score: how often the damaged
   record comes first.

``--clean N`` takes N clean records of each set instead of all; ``--cache`` keeps the figures of each set.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cleanse.config import ScanConfig
from cleanse.formats_of import detect_formats
from cleanse.inspection import rules_of
from cleanse.probing import sample
from cleanse.probing.judge import Judgement, judge, levels
from cleanse.probing.measure import BASELINE_RECORDS, CHUNK, baseline_windows, figures_of, open_probe
from cleanse.probing.settings import ProbeSettings
from cleanse.records import FINDINGS_SCHEMA
from cleanse.rulepacks import load_packs
from cleanse.sources import open_shard, plan

SEEDS = range(5)
BUDGETS = (0.01, 0.001)
TRIALS, BATCH = 200, 32
RESHUFFLE = np.uint64(0x9E3779B97F4A7C15)  # an odd number: multiplying by it permutes the hashes

Rows = NDArray[np.int64]


def drawn(path: Path) -> pa.Table:
    """Every readable record of a file, as the scan draws them (``sample.SCHEMA``)."""
    with tempfile.TemporaryDirectory() as folder:
        config = ScanConfig((str(path),), Path(folder))
        rules_of(config.packs, load_packs(config.packs).fingerprint)  # the measures that tell the script
        shards = plan(config.inputs, config.read, Path(folder) / "spool")
        formats = detect_formats(shards, config)
        nothing = FINDINGS_SCHEMA.empty_table()
        return pa.concat_tables(
            sample.draw(block, fmt, nothing, shard.index, 1.0)
            for shard in shards.shards
            for fmt in [formats[shard.source.index]]
            for block in open_shard(shard, config.read)
            if fmt is not None and block.batch.num_rows
        )


def kinds_of(path: Path, rows: Rows) -> NDArray[np.object_]:
    """The kind of damage of each record, "" for none."""
    labels = json.loads(path.with_suffix(".labels.json").read_text("utf-8"))["labels"]
    return np.array([labels.get(str(row), "") for row in rows.tolist()], object)


def measured(path: Path, settings: ProbeSettings, n_clean: int | None, cache: Path | None) -> pa.Table:
    """Figures of a set (``measure.SCHEMA``), with the kind of damage, and damaged records as suspects."""
    name = f"{path.stem}-{settings.model.replace('/', '_')}-{settings.max_tokens}x{settings.windows}-{n_clean}.parquet"
    if cache is not None and (cache / name).exists():
        return pq.read_table(cache / name)
    records = drawn(path)
    kind = kinds_of(path, records.column("row").to_numpy())
    clean = np.flatnonzero(kind == "")
    if n_clean is not None:
        clean = clean[np.argsort(records.column("hash").to_numpy()[clean])][:n_clean]
    chosen = np.sort(np.concatenate([clean, np.flatnonzero(kind != "")]))
    records = records.take(pa.array(chosen))
    kind = kind[chosen]
    records = records.set_column(2, "suspect", pa.array(kind != ""))
    probe = open_probe(settings)
    if not probe.has_baseline:
        probe.set_baseline(baseline_windows(probe, records, settings, BASELINE_RECORDS))
    begun, parts = (time.perf_counter(), time.process_time()), []
    for start in range(0, len(records), CHUNK):
        parts.append(figures_of(probe, records.slice(start, CHUNK), settings))
        print(f"{path.stem}: {start + parts[-1].num_rows} of {len(records)}", flush=True)
    wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    print(f"{path.stem}: {len(records) / wall:.1f} records per second, {1000 * cpu / len(records):.0f} CPU ms each")
    table = pa.concat_tables(parts).append_column("kind", pa.array(kind.tolist(), pa.string()))
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, cache / name)
    return table


def reseeded(table: pa.Table, seed: int) -> pa.Table:
    """The same figures under other hashes: other controls fit, rank and are drawn."""
    hashes = table.column("hash").to_numpy().copy()
    for _ in range(seed):
        hashes = (hashes ^ (hashes >> np.uint64(31))) * RESHUFFLE
    return table.set_column(table.column_names.index("hash"), "hash", pa.array(hashes))


def judged(table: pa.Table, budget: float, *, everything: bool) -> Judgement:
    """The scan's judgement of these records, all of them measured."""
    return judge(table, n_read=table.num_rows, budget=budget, everything=everything)


def as_suspects(table: pa.Table, suspect: NDArray[np.bool_], budget: float) -> tuple[Rows, Judgement]:
    """A scan of suspects: they, and the controls that it would draw, are judged. Rows of both, and the judgement."""
    n_read = table.num_rows
    level, _ = levels(budget, n_read, int(suspect.sum()), everything=False)
    below = sample.below(table.column("hash").to_numpy(), ProbeSettings.controls_wanted(level) / n_read)
    rows = np.flatnonzero(suspect | below)
    part = table.take(pa.array(rows))
    part = part.set_column(part.column_names.index("suspect"), "suspect", pa.array(suspect[rows]))
    return rows, judge(part, n_read=n_read, budget=budget, everything=False)


def recalls(table: pa.Table) -> dict[str, dict[str, float]]:
    """Part 1, by kind, means over the seeds."""
    kind = np.asarray(table.column("kind").to_pylist(), object)
    suspect = kind != ""
    found: dict[str, dict[str, list[float]]] = {}
    for seed in SEEDS:
        shuffled = reseeded(table, seed)
        p = judged(shuffled, 0.001, everything=False).p_values
        rows, scan = as_suspects(shuffled, suspect, 0.001)
        convicted = np.zeros(len(kind), np.bool_)
        convicted[rows] = scan.convicted
        for name in sorted(set(kind[suspect].tolist())):
            mine = (kind == name) & np.isfinite(p)
            values = found.setdefault(name, {})
            values.setdefault("records", []).append(float(mine.sum()))
            values.setdefault("auc", []).append(float(1 - p[mine].mean()))
            values.setdefault("at_1_percent", []).append(float((p[mine] <= 0.01).mean()))
            values.setdefault("at_0.2_percent", []).append(float((p[mine] <= 0.002).mean()))
            values.setdefault("suspect_at_default_budget", []).append(float(convicted[mine].mean()))
    return {name: {key: round(float(np.mean(v)), 3) for key, v in values.items()} for name, values in found.items()}


def interval(n: int, share: float) -> tuple[int, int]:
    """The central 95 % of a binomial count."""
    log = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(n + 1)]
    p = np.exp(np.array(log) + np.arange(n + 1) * math.log(share) + (n - np.arange(n + 1)) * math.log1p(-share))
    total = np.cumsum(p)
    return int(np.searchsorted(total, 0.025)), int(np.searchsorted(total, 0.975))


def false_alarms(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Part 2 for one clean set, by budget."""
    usable = table.filter(pa.array(table.column("n_tokens").to_numpy() > 0))
    n = usable.num_rows
    for budget in BUDGETS:
        everything, few = [], []
        for seed in SEEDS:
            shuffled = reseeded(usable, seed)
            everything.append(int(judged(shuffled, budget, everything=True).convicted.sum()))
            suspect = np.random.default_rng(seed).random(n) < 0.05
            rows, scan = as_suspects(shuffled, suspect, budget)
            few.append(int(scan.convicted[suspect[rows]].sum()))
        yield {
            "budget": budget,
            "records": n,
            "allowed": interval(n, budget),
            "all_on_trial": everything,
            "a_twentieth_on_trial": few,
            "pooled": [sum(everything), sum(few)],
            "pooled_allowed": interval(n * len(SEEDS), budget),
        }


def first_in_batch(table: pa.Table) -> dict[str, dict[str, float]]:
    """Part 3: of the trials of each kind, the share in which the damaged record has the highest score."""
    kind = np.asarray(table.column("kind").to_pylist(), object)
    usable = table.column("n_tokens").to_numpy() > 0
    clean = np.flatnonzero((kind == "") & usable)
    names = sorted({k for k, fine in zip(kind.tolist(), usable, strict=True) if k and fine})
    rng = np.random.default_rng(0)
    first: dict[str, list[float]] = {name: [] for name in names}
    for seed in SEEDS:
        result = judged(reseeded(table, seed), 0.001, everything=False)
        scores = result.calibrations[0].scores(result.figures)
        for name in names * (TRIALS // len(SEEDS)):
            damaged = rng.choice(np.flatnonzero((kind == name) & usable))
            first[name].append(float(scores[damaged] > scores[rng.choice(clean, BATCH, replace=False)].max()))
    return {name: {"trials": len(won), "first": round(float(np.mean(won)), 3)} for name, won in first.items()}


def main() -> None:
    """Prints the three parts, and writes them as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--max-tokens", type=int, default=ProbeSettings.max_tokens)
    parser.add_argument("--windows", type=int, default=ProbeSettings.windows)
    parser.add_argument("--clean", type=int)
    parser.add_argument("--only", choices=["dirty", "clean"])
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    settings = ProbeSettings(
        model=args.model, backend=args.backend, max_tokens=args.max_tokens, windows=args.windows, scope="all"
    )
    out: dict[str, Any] = {"model": args.model, "clean_records": args.clean}
    if args.only != "clean":
        table = measured(args.data / "dirty/sft_dirty.jsonl", settings, args.clean, args.cache)
        out["recall"] = recalls(table)
        print("kind                records    AUC   1 %  0.2 %  suspects, default budget")
        for name, v in out["recall"].items():
            print(
                f"{name:18} {v['records']:8.0f}  {v['auc']:.3f}  {v['at_1_percent']:.2f}  {v['at_0.2_percent']:.2f}  "
                f"{v['suspect_at_default_budget']:.2f}"
            )
        out["first_in_batch"] = first_in_batch(table)
        for name, v in out["first_in_batch"].items():
            print(f"{name:18} first of {BATCH + 1} in {v['first']:.2f} of {v['trials']} trials")
    if args.only != "dirty":
        out["false_alarms"] = {}
        for name in ("sft", "corpus"):
            table = measured(args.data / f"clean/{name}.jsonl", settings, args.clean, args.cache)
            out["false_alarms"][name] = list(false_alarms(table))
            for row in out["false_alarms"][name]:
                print(name, row)
    if args.json:
        args.json.write_text(json.dumps(out, indent=2, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
