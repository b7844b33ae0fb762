"""Distributions with their limits, as pictures and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from markupsafe import Markup
from numpy.typing import NDArray

from cleanse.distributions import DENSITIES, LENGTHS
from cleanse.report import charts
from cleanse.report.charts import Bar, Line, Scale
from cleanse.report.scan_facts import ScanFacts

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
    level = level_of(facts)
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
        limits = quantiles(values[name][usable & ~suspect], level) if name in _OF_PROBE else []
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


def level_of(facts: ScanFacts) -> float:
    """The p-value at which the scan convicted a suspect."""
    return float((facts.probe or {}).get("level_suspects") or 0.01)


def quantiles(controls: NDArray[np.float64], level: float) -> list[Line]:
    """Where the controls leave off: half of the level on either side."""
    if len(controls) < 40:  # noqa: PLR2004 - too few to have a tail
        return []
    low, high = np.quantile(controls, [level / 2, 1 - level / 2])
    return [Line(float(low), f"{50 * level:.3g} %"), Line(float(high), f"{100 - 50 * level:.5g} %")]
