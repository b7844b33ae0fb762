"""The page of a replay, made from its capsule: what it was, which rows, the figures, and the way out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from markupsafe import Markup

from cleanse.atomic import committed, read_json
from cleanse.errors import CleanseError
from cleanse.report import charts
from cleanse.report.charts import Line, Scale
from cleanse.report.context import setting_rows
from cleanse.report.page import FILE, render
from cleanse.report.record_view import leaves
from cleanse.report.shown_text import Span, pieces
from cleanse.report.wording import in_both, script_words

CAPSULE = "capsule.json"
_SECTIONS = ("verdict", "ranking", "precision", "texts", "settings")
_MOST_ROWS = 200
_MOST_TEXTS = 24
_MOST_FIELDS = 12
_WIDTH = 1500
_LEAST_HISTORY = 3


def is_capsule(folder: Path) -> bool:
    """Whether a replay left its capsule there."""
    return (folder / CAPSULE).is_file()


def write_replay_report(folder: Path, target: Path | None = None) -> Path:
    """Writes the page of a capsule and returns where it is.

    Raises CleanseError where the folder holds no capsule with figures.
    """
    target = target or folder / FILE
    html = build_replay(folder)
    with committed(target) as temporary:
        temporary.write_bytes(html)
    return target


def build_replay(folder: Path) -> bytes:
    """The page as bytes. Raises CleanseError where the folder holds no capsule with figures."""
    try:
        capsule = read_json(folder / CAPSULE)
    except FileNotFoundError:
        raise CleanseError(
            f"{folder} holds no capsule: expected {CAPSULE} in it, as cleanse replay -o writes"
        ) from None
    figures = capsule.get("figures") or {}
    if "ranking" not in figures:
        raise CleanseError(
            f"{folder / CAPSULE} has no replay's figures: run cleanse replay {folder} --model ... -o ..."
        )
    records = _records(folder / "rows.jsonl")
    ranking = figures["ranking"][:_MOST_ROWS]
    culprits = {str(row) for row in figures["culprits"]}
    step = capsule["step"]
    values = {
        "sections": _SECTIONS,
        "title": f"cleanse: replay of step {step}" if step is not None else "cleanse: replay",
        "step": step,
        "kind": figures["diagnosis"],
        "figures": figures,
        "n_rows": len(figures["ranking"]),
        "cards": list(_cards(figures)),
        "steps": [figures["remedy"], figures["resume"]],
        "ranking": [_ranked(item, str(item["row"]) in culprits) for item in ranking],
        "precision": list(_precision(figures)),
        "left_out": [
            {"rows": ", ".join(map(str, item["rows"])), "loss": number(item["loss"]), "norm": number(item["grad_norm"])}
            for item in figures["left_out"]
        ],
        "history": _history(capsule["history"], step),
        "texts": [
            _texts(item, records.get(str(item["row"])), str(item["row"]) in culprits) for item in ranking[:_MOST_TEXTS]
        ],
        "notes": figures["notes"],
        "settings": list(setting_rows(capsule["settings"])),
        "model": list(setting_rows(figures["model"])),
    }
    return render("replay.html.j2", {"mode": "page", "run": "", "words": script_words()}, values, live=False)


def number(value: Any) -> str:
    """A figure for people; figures that are not finite are texts in a capsule."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _share(value: Any) -> float:
    """A share between 0 and 1; what is not finite takes all."""
    if isinstance(value, str):
        return 1.0
    return 0.0 if value is None or math.isnan(value) else min(max(float(value), 0.0), 1.0)


def _cards(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    replayed, logged = figures["replayed"], figures["logged"]
    yield "rows", number(len(figures["ranking"]))
    yield "loss", number(replayed["loss"])
    yield "grad_norm", number(replayed["grad_norm"])
    for name in ("loss", "grad_norm"):
        if name in logged:
            yield f"logged_{name}", number(logged[name])


def _ranked(item: Mapping[str, Any], accused: bool) -> dict[str, Any]:
    return {
        "row": str(item["row"]),
        "accused": accused,
        "source": item["source"] or "",
        "loss": number(item["loss"]),
        "norm": number(item["grad_norm"]),
        "n": number(item["n_supervised"]),
        "score": number(item["score"]),
        "loss_share": _share(item["loss_share"]),
        "grad_share": _share(item["grad_share"]),
        "rules": item["rules"],
        "problem": item["problem"],
    }


def _precision(figures: Mapping[str, Any]) -> Iterator[tuple[Markup, str, str]]:
    """What the step came to: in the run's precision, in fp32, the step before, and what was logged."""
    for key, found in (
        ("replayed", figures["replayed"]),
        ("in_precision", figures["replayed_in_precision"]),
        ("before", figures["replayed_before"]),
        ("logged", figures["logged"]),
    ):
        if found and (found.get("loss") is not None or found.get("grad_norm") is not None):
            label = in_both(f"replay.{key}", precision=figures["precision"])
            yield label, number(found.get("loss")), number(found.get("grad_norm"))


def _records(path: Path) -> dict[str, Mapping[str, Any]]:
    if not path.exists():
        return {}
    with path.open("rb") as lines:
        found = (orjson.loads(line) for line in lines if line.strip())
        return {str(item["row"]): item["record"] for item in found}


def _texts(item: Mapping[str, Any], record: Mapping[str, Any] | None, accused: bool) -> dict[str, Any]:
    """One row's texts, its worst token marked."""
    worst = item["worst_token"]
    fields, found = [], False
    for name, text in list(leaves(record or {}))[:_MOST_FIELDS]:
        span = _place(text, worst) if text and worst and not found else None
        found = found or span is not None
        shown = pieces(text, [span] if span else [], _WIDTH) if text is not None else []
        fields.append({"name": name, "pieces": shown, "n": len(text or "")})
    return {
        "row": str(item["row"]),
        "accused": accused,
        "source": item["source"] or "",
        "reasons": item["reasons"],
        "problem": item["problem"],
        "fields": fields,
        "worst": None if worst is None else {"loss": number(worst["loss"]), "pieces": _worst(worst)},
    }


def _worst(worst: Mapping[str, Any]) -> list[Any]:
    """The token between what stands around it."""
    before, text = worst["before"], worst["text"]
    return pieces(f"{before}{text}{worst['after']}", [Span(len(before), len(before) + len(text), "loss")], 400)


def _place(text: str, worst: Mapping[str, Any]) -> Span | None:
    """Where the worst token stands in a text."""
    before, token, after = worst["before"], worst["text"], worst["after"]
    for context in (before + token + after, before + token, token + after):
        at = text.find(context)
        if at >= 0 and len(context) > len(token):
            start = at + (len(before) if context.startswith(before + token) else 0)
            return Span(start, start + len(token), "loss")
    return None


def _history(history: Sequence[Mapping[str, Any]], step: int | None) -> Markup | None:
    """The logged loss around the step."""
    points = [
        (float(entry["step"]), float(entry["loss"]))
        for entry in history
        if isinstance(entry.get("loss"), (int, float)) and math.isfinite(entry["loss"]) and "step" in entry
    ]
    if len(points) < _LEAST_HISTORY:
        return None
    limits = [] if step is None else [Line(float(step), f"{step}")]
    return charts.curve(
        points,
        name="fig-history",
        title="Logged loss by step",
        description=f"{len(points)} logged steps, the last at {points[-1][0]:.0f} with a loss of {points[-1][1]:.4g}.",
        x=Scale(),
        y=Scale(),
        limits=limits,
    )
