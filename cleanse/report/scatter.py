"""Loss against gradient norm: every point a record that was run through the model, and leads to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from cleanse.report import charts
from cleanse.report.charts import Line, Point, Scale
from cleanse.report.evidence import source_codes
from cleanse.report.figures import Figure, level_of, quantiles
from cleanse.report.rows import Key
from cleanse.report.scan_facts import ScanFacts
from cleanse.safe_text import escape

MOST_POINTS = {"convicted": 250, "suspect": 250, "control": 450}
"""Points of each kind in the picture; of more, those with the smallest hash of their name are drawn."""

_COLUMNS = ("source", "row", "role", "n_tokens", "loss", "grad_norm", "p_value")


def probed(facts: ScanFacts) -> tuple[Figure | None, list[Key]]:
    """Loss against gradient norm, and the records that the points lead to."""
    if not facts.probe_path.exists():
        return None, []
    table = pq.read_table(
        facts.probe_path, columns=["source", "row", "role", "n_tokens", "loss", "grad_norm", "p_value"]
    )
    loss, norm = (table.column(name).to_numpy().astype(np.float64) for name in ("loss", "grad_norm"))
    usable = np.isfinite(loss) & np.isfinite(norm) & (norm > 0)
    if np.count_nonzero(usable) < 2:  # noqa: PLR2004
        return None, []
    suspect = np.asarray(table.column("role").to_pylist(), object) == "suspect"
    p = table.column("p_value").to_numpy().astype(np.float64)
    account = facts.probe or {}
    with np.errstate(invalid="ignore"):
        convicted = p <= np.where(suspect, account.get("level_suspects") or 0.0, account.get("level_others") or 0.0)
    codes, names = source_codes(table.column("source"))
    rows = table.column("row").to_numpy()
    series, keys = [], []
    kinds = {
        "control": usable & ~suspect & ~convicted,
        "suspect": usable & suspect & ~convicted,
        "convicted": usable & convicted,
    }
    for kind, mine in kinds.items():
        drawn = _drawn(np.flatnonzero(mine), MOST_POINTS[kind], names, codes, rows)
        points = []
        for i in drawn:
            key = Key(names[int(codes[i])], int(rows[i]))
            label = f"{escape(key.id)}: {kind}, loss {loss[i]:.3g}, gradient norm {norm[i]:.3g}"
            label += "" if math.isnan(p[i]) else f", p = {p[i]:.2g}"
            points.append(Point(float(loss[i]), float(norm[i]), key.id, label))
            keys.append(key)
        if points:
            series.append((kind, points))
    level = level_of(facts)
    ordinary = usable & ~suspect
    limits = quantiles(loss[ordinary], level) + [
        Line(line.at, line.label, "y") for line in quantiles(norm[ordinary], level)
    ]
    svg = charts.scatter(
        series,
        name="fig-scatter",
        title="Loss against gradient norm of the probed records",
        description=" ".join(f"{len(points)} {kind} records." for kind, points in series),
        x=Scale(),
        y=Scale(log=True),
        limits=limits,
    )
    n = {kind: int(np.count_nonzero(mine)) for kind, mine in kinds.items()}
    drawn_of = {kind: len(points) for kind, points in series}
    unplaced = int(np.count_nonzero(~usable & (table.column("n_tokens").to_numpy() > 0)))
    return Figure("scatter", svg, facts={"n": n, "drawn": drawn_of, "unplaced": unplaced}), keys


def _drawn(
    mine: NDArray[np.int64], most: int, names: Sequence[str], codes: NDArray[np.int64], rows: NDArray[np.int64]
) -> list[int]:
    """At most so many of them, the same ones on every machine."""
    if len(mine) <= most:
        return mine.tolist()
    drawn = [(xxhash.xxh3_64_intdigest(f"{names[int(codes[i])]}:{rows[i]}".encode()), i) for i in mine.tolist()]
    return sorted(i for _, i in sorted(drawn)[:most])
