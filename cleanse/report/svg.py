"""A chart's SVG made fit for the page: what pygal adds beyond geometry goes, roles, titles, limits and links come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from markupsafe import Markup

_DECIMALS = 1


class Drawing:
    """One chart, drawn by pygal and then changed."""

    def __init__(self, chart: Any, classes: Sequence[str], *, name: str, title: str, description: str) -> None:
        """Draws.

        Args:
            chart: of pygal, not yet rendered.
            classes: names of the series, in their order.
            name: what the picture's ids begin with.
            title: for screen readers.
            description: the same, longer.
        """
        chart.setup()
        text, self._view = chart.svg.render(is_unicode=True), chart.view
        chart.teardown()
        self._tree: Any = ET.fromstring(text)  # noqa: S314 - written by pygal a line above
        self._classes = classes
        for node in self._tree.iter():
            node.tag = node.tag.rpartition("}")[2]
            for key in [key for key in node.attrib if key.startswith("{")]:
                node.set(key.rpartition("}")[2], node.attrib.pop(key))
            node.attrib.pop("style", None)
            node.tail = None
        self._dress(name, title, description)

    def _dress(self, name: str, title: str, description: str) -> None:
        tree, box = self._tree, self._tree.get("viewBox")
        for parent in list(tree.iter()):
            for child in list(parent):
                if child.tag in {"defs", "style", "script", "title"}:
                    parent.remove(child)
        tree.attrib.clear()
        tree.set("viewBox", box)
        tree.set("class", "chart")
        tree.set("role", "group" if any(True for _ in tree.iter("a")) else "img")
        tree.set("aria-labelledby", f"{name}-t {name}-d")
        for place, (tag, text) in enumerate((("title", title), ("desc", description))):
            node = ET.Element(tag, {"id": f"{name}-{tag[0]}"})
            node.text = text
            tree.insert(place, node)
        for group in tree.iter():
            for index, label in enumerate(self._classes):
                if f"serie-{index}" in group.get("class", "").split():
                    group.set("class", f"series {label}")

    def shape_points(self) -> None:
        """Gives points their shape, their words, and links that stay in the page."""
        for series in self._tree.iter():
            kind = series.get("class", "").partition(" ")[2]
            if series.get("class", "").startswith("series") and kind in self._classes:
                for link in list(series.iter("a")):
                    _shape(link, kind)

    def stroke(self, at: float) -> None:
        """One value on the x axis, as a short stroke."""
        place, bottom = self._x(at), round(self._view.height)
        ends = {"x1": place, "x2": place, "y1": str(bottom - 26), "y2": str(bottom)}
        ET.SubElement(self._plot, "line", {"class": "single", **ends})

    def limit(self, at: float, label: str, axis: str, words_at: int = 12) -> None:
        """A line across the plot, with its words at the end."""
        group = ET.SubElement(self._plot, "g", {"class": "limit"})
        width, height = round(self._view.width), round(self._view.height)
        if axis == "x":
            place = self._x(at)
            ET.SubElement(group, "line", {"x1": place, "x2": place, "y1": "0", "y2": str(height)})
            left = float(place) > width / 2
            side = {"text-anchor": "end", "x": str(float(place) - 4)} if left else {"x": str(float(place) + 4)}
            text = ET.SubElement(group, "text", {**side, "y": str(words_at)})
        else:
            place = str(round(float(self._view.y(at)), _DECIMALS))
            ET.SubElement(group, "line", {"x1": "0", "x2": str(width), "y1": place, "y2": place})
            above = {"x": str(width - 4), "y": str(float(place) - 4), "text-anchor": "end"}
            text = ET.SubElement(group, "text", above)
        text.text = label

    def markup(self) -> Markup:
        """The SVG. ElementTree escapes texts and attributes, so that nothing from the data is markup."""
        return Markup(ET.tostring(self._tree, encoding="unicode"))  # noqa: S704 - see above

    @property
    def _plot(self) -> Any:
        return next(node for node in self._tree.iter() if node.get("class") == "plot")

    def _x(self, at: float) -> str:
        return str(round(float(self._view.x(at)), _DECIMALS))


def _shape(link: Any, kind: str) -> None:
    href = link.get("href")
    words = next((d.text or "" for d in link if d.get("class") == "label"), "")
    circle = next(link.iter("circle"))
    link.attrib.clear()
    link.set("href", href)
    link.set("aria-label", words)
    if kind == "control":
        link.set("tabindex", "-1")  # hundreds of them: they are reached by search
    for child in list(link):
        link.remove(child)
    title = ET.SubElement(link, "title")
    title.text = words
    link.append(_mark(kind, round(float(circle.get("cx")), _DECIMALS), round(float(circle.get("cy")), _DECIMALS)))


def _mark(kind: str, cx: float, cy: float) -> Any:
    if kind == "control":
        return ET.Element("circle", {"cx": str(cx), "cy": str(cy), "r": "2.6"})
    if kind == "convicted":
        return ET.Element("path", {"d": f"M{cx} {cy - 6}l6 6-6 6-6-6z"})
    return ET.Element("path", {"d": f"M{cx} {cy - 5}l5 9h-10z"})
