"""One record as the page draws it: its texts in pieces, why it is here, what the probe measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from cleanse import safe_text
from cleanse.formats import get_text
from cleanse.formats.jsonwalk import key_path, scalar_text
from cleanse.records import Action
from cleanse.report.rows import ADDED, Key, Record, Rows
from cleanse.report.shown_text import Span, of_bytes, of_excerpt, pieces, within
from cleanse.reviewing.releasing import EVIDENCE as RELEASED

_MOST_FIELDS = 24
_MOST_FINDINGS = 24
_SHADES = (1.5, 4.0, 8.0, 12.0)
"""Nats from which a token is shaded more. A vocabulary of 50,000 guessed blindly costs 10.8 nats per token."""

_PROBED = ("loss", "max_token_loss", "grad_norm", "p_value", "n_tokens")


@dataclass(frozen=True)
class Widths:
    """Characters shown of one text."""

    flagged: int = 1200  # a field with a finding
    other: int = 420


WIDE = Widths()
NARROW = Widths(260, 160)
"""For records that are here only as a point of a picture."""


def view(
    rows: Rows, key: Key, findings: Sequence[Mapping[str, Any]], probe: Mapping[str, Any] | None, widths: Widths = WIDE
) -> dict[str, Any]:
    """The record as JSON values."""
    held = rows.quarantined(key)
    record = held if held is not None else rows.clean(key, lambda candidate: _fits(candidate, findings))
    shown: dict[str, Any] = {
        "id": key.id,
        "name": safe_text.escape(key.id),
        "source": key.source,
        "row": key.row,
        "state": _state(findings, held is not None),
        "reasons": list(held["cleanse_reasons"]) if held is not None else [],
        "findings": [_finding(item) for item in findings[:_MOST_FINDINGS]],
    }
    if len(findings) > _MOST_FINDINGS:
        shown["more_findings"] = len(findings) - _MOST_FINDINGS
    if record is None:
        shown["unknown"] = True
    elif held is not None and held["cleanse_raw"] is not None:
        shown["raw"] = of_bytes(held["cleanse_raw"], widths.flagged)
    else:
        shown |= _fields(record, findings, widths, repaired=held is None)
    if probe is not None:
        shown["probe"] = _probe(probe)
    return shown


def _state(findings: Iterable[Mapping[str, Any]], held: bool) -> str:
    if held:
        return "quarantined"
    if any(item["rule"] == RELEASED for item in findings):
        return "released"
    actions = {item["action"] for item in findings}
    if actions & {Action.SUSPECT.value, Action.REJECT.value}:
        return "suspect"
    if Action.REPAIR.value in actions:
        return "repaired"
    return "noted" if actions else "control"


def _finding(item: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: item[name] for name in ("rule", "action", "field", "start", "end", "value", "limit")}
    kept["message"] = safe_text.escape(item["message"][:600])
    if item["excerpt"]:
        kept["excerpt"] = safe_text.escape(item["excerpt"][:400])
    return {name: value for name, value in kept.items() if value is not None and value != "" and _is_number(value)}


def _is_number(value: Any) -> bool:
    """False for what JSON has no word for."""
    return not isinstance(value, float) or math.isfinite(value)


def _probe(item: Mapping[str, Any]) -> dict[str, Any]:
    said = {name: item[name] for name in _PROBED if item[name] is not None and _is_number(item[name])}
    said |= {"role": item["role"], "worst": pieces(item["worst"], (), 400)}
    if item.get("token_losses"):
        said["tokens"] = shaded(item["token_losses"])
    if not (item["loss_finite"] and item["grad_finite"]):
        said["not_finite"] = True
    if item["problem"]:
        said["problem"] = safe_text.escape(item["problem"])[:200]
    return said


def shaded(tokens: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Text in pieces, each token shaded by its loss: ``{"k": 0 to 4, "l": nats, "t": pieces}``."""
    shown: list[Any] = []
    for token in tokens:
        loss = token["loss"]
        shade = 0 if loss is None else sum(loss >= limit for limit in _SHADES)
        drawn = within(token["text"], (), 400)
        if shade:
            shown.append({"k": shade, "l": round(loss, 1) if math.isfinite(loss) else str(loss), "t": drawn})
            continue
        for piece in drawn:
            if isinstance(piece, str) and shown and isinstance(shown[-1], str):
                shown[-1] += piece
            else:
                shown.append(piece)
    return shown


def _fields(record: Record, findings: Sequence[Mapping[str, Any]], widths: Widths, *, repaired: bool) -> dict[str, Any]:
    spans: dict[str, list[Span]] = {}
    before: dict[str, list[Mapping[str, Any]]] = {}
    for item in findings:
        if repaired and item["action"] == Action.REPAIR.value:
            before.setdefault(item["field"], []).append(item)  # its place is one in the text as it was
        elif item["field"]:
            spans.setdefault(item["field"], [])
            if item["start"] is not None:
                spans[item["field"]].append(Span(item["start"], item["end"], item["rule"]))
    flagged = [*spans, *(name for name in before if name not in spans)]
    texts = dict(leaves(record))
    for name in flagged:
        if name and name not in texts:
            texts |= _at(record, name)
    order = [name for name in texts if name in flagged] + [name for name in texts if name not in flagged]
    chosen = set(order[:_MOST_FIELDS])
    fields = []
    for name, text in texts.items():
        if name not in chosen:
            continue
        width = widths.flagged if name in flagged else widths.other
        places = [] if name in before else spans.get(name, [])  # a repair may have moved what stands behind it
        field: dict[str, Any] = {
            "name": safe_text.escape(name)[:200],
            "pieces": _of_text(text, places, width),
            "n": _length(text),
        }
        if name in before:
            field["before"] = [{"rule": b["rule"], "pieces": of_excerpt(b["excerpt"])} for b in before[name][:4]]
        fields.append(field)
    return {"fields": fields, **({"more_fields": len(order) - _MOST_FIELDS} if len(order) > _MOST_FIELDS else {})}


def _of_text(text: str | None, spans: Sequence[Span], width: int) -> list[Any] | None:
    return None if text is None else pieces(text, spans, width)


def _length(text: str | None) -> int:
    return 0 if text is None else len(text)


def leaves(record: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Every value of the input's columns by its path, numbers as their JSON text."""
    for column, value in record.items():
        if column not in ADDED:
            yield from _below(key_path(column).removeprefix("."), value)


def _below(path: str, value: Any) -> Iterator[tuple[str, str | None]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if inner is not None:  # Arrow fills in the keys that other records have
                yield from _below(path + key_path(str(key)), inner)
    elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
        for i, inner in enumerate(value):
            yield from _below(f"{path}[{i}]", inner)
    elif isinstance(value, bytes):
        yield path, value.decode("utf-8", "replace")
    else:
        yield path, value if value is None or isinstance(value, str) else scalar_text(value)


def _at(record: Record, name: str) -> dict[str, str]:
    """A text inside JSON text, which the walk over columns does not open."""
    try:
        found = get_text(record, name)
    except (KeyError, IndexError, TypeError, ValueError, orjson.JSONDecodeError):
        return {}
    return {name: found if isinstance(found, str) else scalar_text(found)}


def _fits(record: Record, findings: Sequence[Mapping[str, Any]]) -> bool:
    """Whether what was found is in this record: told by the excerpts of findings that changed nothing."""
    for item in findings:
        if item["action"] == Action.REPAIR.value or item["start"] is None:
            continue
        text = _at(record, item["field"]).get(item["field"])
        if text is not None:
            return safe_text.excerpt(text, item["start"], item["end"]) == item["excerpt"]
    return False
