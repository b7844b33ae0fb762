"""Charts as SVG. pygal works out scales, axes and marks; the page's stylesheet gives them their look.

What pygal adds beyond geometry (its own stylesheet, scripts, the date, random ids) is taken away, so that the same
data give the same bytes and nothing in the picture can act. Titles, roles and the lines of limits are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from cleanse.report.svg import Drawing

WIDE, NARROW = (880, 460), (520, 240)
"""Width and height of a picture that stands alone, and of one among others."""


class Bar(NamedTuple):
    """One bar of a histogram: [start, end) and its height."""

    start: float
    end: float
    height: float


class Point(NamedTuple):
    """One record in a scatter plot."""

    x: float
    y: float
    id: str
    label: str


@dataclass(frozen=True)
class Line:
    """A limit: where it lies on its axis, and what is written at it."""

    at: float
    label: str
    axis: str = "x"


@dataclass(frozen=True)
class Scale:
    """How an axis is read: positions are logarithms where ``log`` is set, labels are the values."""

    log: bool = False

    def place(self, value: float) -> float:
        """Where a value stands on the axis."""
        return math.log10(max(value, 1e-9)) if self.log else value

    def ticks(self, low: float, high: float) -> list[float]:
        """Round values between two others, at most a dozen."""
        if not self.log:
            step = _round_step((high - low) / 6 or 1.0)
            return [step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
        exponents = range(math.floor(self.place(low)), math.ceil(self.place(high)) + 1)
        factors = (1, 2, 5) if len(exponents) <= 3 else (1,)  # noqa: PLR2004 - a wide axis has room for powers only
        found = [f * 10.0**e for e in exponents for f in factors]
        return [v for v in found if low * 0.999 <= v <= high * 1.001]


def number(value: float) -> str:
    """A number as an axis shows it: 0.02, 5, 200, 20k, 3M."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if name == 'k' else size):.4g}{name}"
    return f"{value:.4g}"


def histogram(
    series: Sequence[tuple[str, Sequence[Bar]]],
    *,
    name: str,
    title: str,
    description: str,
    scale: Scale,
    limits: Sequence[Line] = (),
    singles: Sequence[float] = (),
) -> Markup:
    """Bars over ranges of values, series over each other.

    Args:
        series: (CSS class, bars) from back to front.
        name: what the picture's ids begin with; unique in the page.
        title: for screen readers.
        description: the same, longer.
        scale: of the x axis.
        limits: drawn as lines, in values.
        singles: values too few for bars, each drawn as a stroke.
    """
    import pygal  # noqa: PLC0415 - only where a picture is drawn

    edges = [*(e for _, bars in series for bar in bars for e in (bar.start, bar.end)), *singles]
    low, high = min(edges), max(edges)
    inside = [line for line in limits if low <= line.at <= high * (8 if scale.log else 1.5)]
    high = max([high, *(line.at for line in inside)])
    chart = pygal.Histogram(**_settings(NARROW), xrange=(scale.place(low), scale.place(high)))
    for label, bars in series:
        chart.add(label, [(bar.height, scale.place(bar.start), scale.place(bar.end)) for bar in bars])
    _label_x(chart, scale, low, high)
    chart.y_labels = Scale().ticks(0, max(bar.height for _, bars in series for bar in bars)) or [0, 1]
    drawing = Drawing(chart, [label for label, _ in series], name=name, title=title, description=description)
    for place, line in enumerate(inside):
        drawing.limit(scale.place(line.at), line.label, "x", 12 + 14 * place)
    for value in singles:
        drawing.stroke(scale.place(value))
    return drawing.markup()


def scatter(
    series: Sequence[tuple[str, Sequence[Point]]],
    *,
    name: str,
    title: str,
    description: str,
    x: Scale,
    y: Scale,
    limits: Sequence[Line] = (),
) -> Markup:
    """Records as points that lead to them. Each series has a shape of its own, so that colour is not all."""
    import pygal  # noqa: PLC0415

    points = [p for _, some in series for p in some]
    spans = [_range([p.x for p in points], x, limits, "x"), _range([p.y for p in points], y, limits, "y")]
    chart = pygal.XY(
        **_settings(WIDE),
        stroke=False,
        dots_size=3,
        xrange=(x.place(spans[0][0]), x.place(spans[0][1])),
        range=(y.place(spans[1][0]), y.place(spans[1][1])),
    )
    for label, some in series:
        chart.add(
            label,
            [
                {"value": (x.place(p.x), y.place(p.y)), "label": p.label, "xlink": {"href": f"#r={quote(p.id)}"}}
                for p in some
            ],
        )
    _label_x(chart, x, *spans[0])
    chart.y_labels = [{"value": y.place(v), "label": number(v)} for v in y.ticks(*spans[1])]
    drawing = Drawing(chart, [label for label, _ in series], name=name, title=title, description=description)
    drawing.shape_points()
    for line in limits:
        drawing.limit((x if line.axis == "x" else y).place(line.at), line.label, line.axis)
    return drawing.markup()


def curve(
    points: Sequence[tuple[float, float]],
    *,
    name: str,
    title: str,
    description: str,
    x: Scale,
    y: Scale,
    limits: Sequence[Line] = (),
) -> Markup:
    """Values in their order, joined by a line."""
    import pygal  # noqa: PLC0415

    across = _range([p[0] for p in points], x, limits, "x")
    up = _range([p[1] for p in points], y, limits, "y")
    chart = pygal.XY(
        **_settings((WIDE[0], NARROW[1])),
        dots_size=2.5,
        xrange=(x.place(across[0]), x.place(across[1])),
        range=(y.place(up[0]), y.place(up[1])),
    )
    chart.add("curve", [(x.place(a), y.place(b)) for a, b in points])
    _label_x(chart, x, *across)
    chart.y_labels = [{"value": y.place(v), "label": number(v)} for v in y.ticks(*up)]
    drawing = Drawing(chart, ["curve"], name=name, title=title, description=description)
    for line in limits:
        drawing.limit((x if line.axis == "x" else y).place(line.at), line.label, line.axis)
    return drawing.markup()


def _settings(size: tuple[int, int]) -> dict[str, Any]:
    return {
        "css": [],
        "js": [],
        "width": size[0],
        "height": size[1],
        "show_legend": False,
        "disable_xml_declaration": True,
        "explicit_size": False,
        "margin": 8,
        "show_x_guides": False,
        "print_values": False,
        "truncate_label": -1,
        "value_formatter": number,
    }


def _label_x(chart: Any, scale: Scale, low: float, high: float) -> None:
    chart.x_labels = [scale.place(v) for v in scale.ticks(low, high)]
    chart.x_value_formatter = _reader(scale)


def _reader(scale: Scale) -> Callable[[float], str]:
    return lambda at: number(round(10.0 ** min(at, 300.0), 9) if scale.log else at)


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(f * power for f in (1, 2, 5, 10) if step <= f * power * 1.0001)


def _range(values: Sequence[float], scale: Scale, limits: Sequence[Line], axis: str) -> tuple[float, float]:
    every = [*values, *(line.at for line in limits if line.axis == axis)]
    low, high = min(every), max(every)
    if scale.log:
        return low / 1.15, high * 1.15
    margin = 0.04 * (high - low) or 1.0
    return low - margin, high + margin
