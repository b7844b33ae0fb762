"""What the pictures show: distributions with limits, and loss against gradient norm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import xxhash
from markupsafe import Markup
from numpy.typing import NDArray

from cleanse.distributions import DENSITIES, LENGTHS
from cleanse.report import charts
from cleanse.report.charts import Bar, Line, Point, Scale
from cleanse.report.evidence import source_codes
from cleanse.report.rows import Key
from cleanse.report.scan_facts import ScanFacts
from cleanse.safe_text import escape

MOST_POINTS = {"convicted": 250, "suspect": 250, "control": 450}
"""Points of each kind in the picture; of more, those with the smallest hash of their name are drawn."""

_BINS = 36
_FEW = 30  # suspects below which each is drawn by itself
_OF_PROBE = ("loss", "grad_norm")
_LENGTH_MEASURES = frozenset({"chars", "longest_run", "longest_word"})


@dataclass
class Figure:
    """One picture and the same as a table."""

    key: str  # of the words around it
    svg: Markup
    table: list[tuple[str, ...]] = field(default_factory=list)
    columns: tuple[str, ...] = ()
    limits: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def distributions(facts: ScanFacts) -> list[Figure]:
    """Length, characters per token, loss and gradient norm, each where the scan knows it."""
    found = []
    counted = facts.summary.get("distributions", {})
    if counted.get("characters"):
        bars = _bars(counted["characters"], LENGTHS, 0.7)
        limits = [
            Line(rule.limit.default.max, f"{rule.id} {charts.number(rule.limit.default.max)}")
            for rule in facts.known_rules.values()
            if rule.measure in _LENGTH_MEASURES and rule.limit and rule.limit.default and rule.limit.default.max
        ]
        found.append(_histogram("length", [("all", bars)], Scale(log=True), limits))
    if counted.get("characters_per_token"):
        found.append(_histogram("density", [("all", _bars(counted["characters_per_token"], DENSITIES, 0.0))], Scale()))
    if facts.probe_path.exists():
        known = {figure.key for figure in found}
        found += _of_probe(facts, ("bytes_per_token", *_OF_PROBE) if "density" not in known else _OF_PROBE)
    return found


def _bars(counts: Mapping[str, int], edges: NDArray[np.int64] | NDArray[np.float64], zero: float) -> list[Bar]:
    """Bins of summary.json as bars; ``zero`` is where a bin begins whose lower edge is 0."""
    ends = dict(pairwise(edges.tolist())) | {0.0: float(edges[edges > 0][0])}
    bars = []
    for edge, n in counts.items():
        start = float(edge)
        bars.append(Bar(start or zero, ends.get(start, start * 1.2), n))
    return bars


def _histogram(
    key: str,
    series: Sequence[tuple[str, Sequence[Bar]]],
    scale: Scale,
    limits: Sequence[Line] = (),
    singles: Sequence[float] = (),
) -> Figure:
    rows: list[tuple[str, ...]] = [
        (kind, f"{charts.number(bar.start)} - {charts.number(bar.end)}", charts.number(bar.height))
        for kind, bars in series
        for bar in bars
        if bar.height
    ]
    rows += [("suspect", charts.number(value), "1") for value in sorted(singles)]
    svg = charts.histogram(
        series,
        name=f"fig-{key}",
        title=_TITLES[key],
        description=_described(series),
        scale=scale,
        limits=limits,
        singles=singles,
    )
    return Figure(key, svg, rows, ("kind", "range", "height"), [line.label for line in limits])


_TITLES = {
    "length": "Records by length in characters",
    "density": "Records by characters per token",
    "bytes_per_token": "Probed records by bytes per token",
    "loss": "Probed records by loss in nats per token",
    "grad_norm": "Probed records by gradient norm",
}


def _described(series: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    said = []
    for kind, bars in series:
        top = max(bars, key=lambda bar: bar.height)
        said.append(
            f"{kind}: from {charts.number(min(b.start for b in bars))} to {charts.number(max(b.end for b in bars))}, "
            f"most between {charts.number(top.start)} and {charts.number(top.end)}."
        )
    return " ".join(said)


def _of_probe(facts: ScanFacts, names: Sequence[str]) -> list[Figure]:
    """Controls beside suspects, as shares of their own number: there are many more of the ones than of the others."""
    table = pq.read_table(facts.probe_path, columns=["role", "n_tokens", "loss", "grad_norm", "nats_per_byte"])
    suspect = np.asarray(table.column("role").to_pylist(), object) == "suspect"
    values = {name: table.column(name).to_numpy().astype(np.float64) for name in table.column_names[2:]}
    level = _level(facts)
    found = []
    with np.errstate(invalid="ignore", divide="ignore"):
        values["bytes_per_token"] = values["loss"] / values.pop("nats_per_byte")
    for name in names:
        scale = Scale(log=name != "loss")
        usable = np.isfinite(values[name]) & (values[name] > 0 if scale.log else True)
        if np.count_nonzero(usable) < 2:  # noqa: PLR2004 - one record is no distribution
            continue
        few = usable & suspect if np.count_nonzero(usable & suspect) < _FEW else np.zeros(len(suspect), np.bool_)
        series = _shares(values[name], usable & ~few, suspect, scale)
        limits = _quantiles(values[name][usable & ~suspect], level) if name in _OF_PROBE else []
        if series:
            found.append(_histogram(name, series, scale, limits, values[name][few].tolist()))
    return found


def _shares(
    values: NDArray[np.float64], usable: NDArray[np.bool_], suspect: NDArray[np.bool_], scale: Scale
) -> list[tuple[str, list[Bar]]]:
    placed = np.log10(np.where(usable, values, 1.0)) if scale.log else values
    if not usable.any():
        return []
    edges = np.linspace(placed[usable].min(), placed[usable].max() + 1e-9, _BINS + 1)
    series = []
    for kind, mine in (("control", usable & ~suspect), ("suspect", usable & suspect)):
        if not mine.any():
            continue
        counts = np.histogram(placed[mine], edges)[0] * 100 / np.count_nonzero(mine)
        ends = 10**edges if scale.log else edges
        series.append(
            (kind, [Bar(float(a), float(b), float(n)) for a, b, n in zip(ends, ends[1:], counts, strict=False)])
        )
    return series


def _level(facts: ScanFacts) -> float:
    return float((facts.probe or {}).get("level_suspects") or 0.01)


def _quantiles(controls: NDArray[np.float64], level: float) -> list[Line]:
    """Where the controls leave off: half of the level on either side."""
    if len(controls) < 40:  # noqa: PLR2004 - too few to have a tail
        return []
    low, high = np.quantile(controls, [level / 2, 1 - level / 2])
    return [Line(float(low), f"{50 * level:.3g} %"), Line(float(high), f"{100 - 50 * level:.5g} %")]


def probed(facts: ScanFacts) -> tuple[Figure | None, list[Key]]:
    """Loss against gradient norm, and the records that the points lead to."""
    if not facts.probe_path.exists():
        return None, []
    table = pq.read_table(facts.probe_path, columns=["source", "row", "role", "loss", "grad_norm", "p_value"])
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
    level = _level(facts)
    ordinary = usable & ~suspect
    limits = _quantiles(loss[ordinary], level) + [
        Line(line.at, line.label, "y") for line in _quantiles(norm[ordinary], level)
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
    return Figure("scatter", svg, facts={"n": n, "drawn": {kind: len(points) for kind, points in series}}), keys


def _drawn(
    mine: NDArray[np.int64], most: int, names: Sequence[str], codes: NDArray[np.int64], rows: NDArray[np.int64]
) -> list[int]:
    """At most so many of them, the same ones on every machine."""
    if len(mine) <= most:
        return mine.tolist()
    drawn = [(xxhash.xxh3_64_intdigest(f"{names[int(codes[i])]}:{rows[i]}".encode()), i) for i in mine.tolist()]
    return sorted(i for _, i in sorted(drawn)[:most])
