"""Pictures: marks stand where their values are, nothing of the library but geometry is left."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from cleanse.report import charts
from cleanse.report.charts import Bar, Line, Point, Scale, number

TEXTS = {"name": "fig-x", "title": "A <title>", "description": "A & description"}


def tree(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def bars(**more: object) -> ET.Element:
    series = [("control", [Bar(1, 10, 4), Bar(10, 100, 8)]), ("suspect", [Bar(1, 10, 2)])]
    return tree(charts.histogram(series, scale=Scale(log=True), **TEXTS, **more))


def points(**more: object) -> ET.Element:
    series = [
        ("control", [Point(1.0, 10.0, "a:1", "first"), Point(3.0, 1000.0, "a:2", "second")]),
        ("convicted", [Point(2.0, 100.0, 'b"<&:3', "third <b>")]),
    ]
    return tree(charts.scatter(series, x=Scale(), y=Scale(log=True), **TEXTS, **more))


def test_a_picture_is_named_and_the_library_says_nothing_about_itself() -> None:
    for drawn in (bars(), points()):
        assert drawn.find("title").text == "A <title>"
        assert drawn.find("desc").text == "A & description"
        assert drawn.get("aria-labelledby") == "fig-x-t fig-x-d"
        text = ET.tostring(drawn, encoding="unicode")
        assert not re.search(r"pygal|kozea|<script|<style|style=|_blank|xlink|http", text, re.IGNORECASE)
    assert bars().get("role") == "img"
    assert points().get("role") == "group"  # its links are reached one by one


def test_the_same_data_give_the_same_bytes() -> None:
    assert ET.tostring(bars()) == ET.tostring(bars())
    assert ET.tostring(points()) == ET.tostring(points())


def test_bars_are_as_high_as_their_counts() -> None:
    control, suspect = (
        [(float(r.get("height")), float(r.get("width"))) for r in g.iter("rect")]
        for g in bars().iter("g")
        if g.get("class") in {"series control", "series suspect"} and list(g.iter("rect"))
    )
    assert control[1][0] / control[0][0] == pytest.approx(2, rel=0.02)
    assert suspect[0][0] / control[0][0] == pytest.approx(0.5, rel=0.02)
    assert control[0][1] == pytest.approx(control[1][1], rel=0.02)  # a decade is a decade


def test_points_stand_at_their_logarithms_and_lead_to_their_records() -> None:
    links = list(points().iter("a"))
    assert [link.get("href") for link in links] == ["#r=a%3A1", "#r=a%3A2", "#r=b%22%3C%26%3A3"]
    assert [link.get("aria-label") for link in links] == ["first", "second", "third <b>"]
    (x1, y1), (x2, y2) = ((float(c.get("cx")), float(c.get("cy"))) for c in points().iter("circle"))
    x3, y3 = map(float, re.match(r"M([\d.]+) ([\d.]+)", _diamond()).groups())
    assert x3 == pytest.approx((x1 + x2) / 2, abs=1)
    assert y3 + 6 == pytest.approx((y1 + y2) / 2, abs=1)


def _diamond() -> str:
    (link,) = [link for link in points().iter("a") if "third" in link.get("aria-label")]
    return link.find("path").get("d")


def test_limits_are_drawn_where_they_are() -> None:
    drawn = points(limits=[Line(2.0, "middle"), Line(100.0, "up", "y")])
    across, up = [g for g in drawn.iter("g") if g.get("class") == "limit"]
    circles = [(float(c.get("cx")), float(c.get("cy"))) for c in drawn.iter("circle")]
    assert float(across.find("line").get("x1")) == pytest.approx((circles[0][0] + circles[1][0]) / 2, abs=1)
    assert float(up.find("line").get("y1")) == pytest.approx((circles[0][1] + circles[1][1]) / 2, abs=1)
    assert [g.find("text").text for g in (across, up)] == ["middle", "up"]


def test_a_limit_far_away_does_not_squeeze_the_bars() -> None:
    near = bars(limits=[Line(400.0, "near"), Line(1e9, "far")])
    assert [t.text for g in near.iter("g") if g.get("class") == "limit" for t in g.iter("text")] == ["near"]


def test_few_values_are_strokes() -> None:
    strokes = [line for line in bars(singles=[1.0, 10.0]).iter("line") if line.get("class") == "single"]
    assert len(strokes) == 2
    assert float(strokes[0].get("x1")) < float(strokes[1].get("x1"))


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (0.02, "0.02"), (2000, "2000"), (20_000, "20k"), (3e6, "3M"), (1.5e9, "1.5G")]
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown


def test_ticks_are_round_and_inside() -> None:
    assert Scale().ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert Scale(log=True).ticks(1.5, 60) == [2, 5, 10, 20, 50]
    assert Scale(log=True).ticks(1, 1e6) == [1, 10, 100, 1e3, 1e4, 1e5, 1e6]
