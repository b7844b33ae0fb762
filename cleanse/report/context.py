"""What the template of a scan's page names: numbers, steps, tables. Everything stays text; the template escapes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from cleanse.report.evidence import findings_by_rule, findings_of_files
from cleanse.report.figures import Figure, distributions
from cleanse.report.languages import by_script
from cleanse.report.rows import Key
from cleanse.report.scan_facts import ScanFacts
from cleanse.report.shown_text import pieces
from cleanse.report.wording import in_both
from cleanse.safe_text import escape

STATES = ("held", "suspect", "repaired", "noted", "released", "any", "control")
_MOST_REASONS = 10
_MOST_NAMES = 3
_MOST_BATCHES = 40
_MOST_OF_FILES = 60
_MOST_LINKED = 30  # triggers whose examples are in the page
_EXAMPLES = 2
_THINNEST = 6  # of 1,000: a part that exists is seen


def of_scan(facts: ScanFacts, records: Sequence[Mapping[str, Any]], scatter: Figure | None) -> dict[str, Any]:
    """All values of ``scan.html.j2``."""
    counts = facts.counts
    sources = facts.sources
    scripts = by_script(facts)
    names = [Path(source["name"]).name or source["name"] for source in facts.summary["sources"]]
    title = ", ".join(names[:_MOST_NAMES]) + (f" + {len(names) - _MOST_NAMES:,}" if len(names) > _MOST_NAMES else "")
    probe = facts.probe
    return {
        "title": f"cleanse: {escape(title)[:120]}",
        "names": escape(title),
        "out": escape(facts.place or str(facts.out)),
        "counts": counts,
        "cards": _cards(facts),
        "flow": _flow(facts),
        "steps": list(_steps(facts, sum(record["state"] == "quarantined" for record in records))),
        "rules": _rules(facts, records),
        "most_records": max((rule["records"] for rule in facts.rules), default=1),
        "n_shown": len(records),
        "states": STATES,
        "sources": sources,
        "many_sources": len(facts.summary["sources"]) > 1,
        "n_more_sources": len(facts.summary["sources"]) - len(sources),
        "figures": distributions(facts),
        "scatter": scatter,
        "level": f"{100 * float((probe or {}).get('level_suspects') or 0.01):.3g} %",
        "notes": (probe or {}).get("notes", []),
        "batches": _batches(facts),
        "triggers": [
            {**found, "ngram": pieces(found["ngram"], (), 300), "response": pieces(found["response"], (), 400)}
            for found in facts.triggers
        ],
        "scripts": scripts,
        "most_of_script": max((script["read"] for script in scripts), default=1),
        "of_files": findings_of_files(facts.findings_path, _MOST_OF_FILES),
        "seconds": [(name, f"{seconds:,.1f} s") for name, seconds in facts.summary["seconds"].items()],
        "versions": list(facts.summary["versions"].items()),
        "settings": list(setting_rows(facts.summary["configuration"])),
        "probe_account": list(setting_rows({k: v for k, v in (probe or {}).items() if k != "notes"})),
    }


def linked(facts: ScanFacts) -> list[Key]:
    """The records that triggers and batches lead to."""
    names = [name for found in facts.triggers[:_MOST_LINKED] for name in found["examples"]]
    names += [batch["id"] for batch in _batches(facts)]
    return [Key(name.rpartition(":")[0], int(name.rpartition(":")[2])) for name in names]


def _share(part: int, whole: int) -> str:
    share = 100 * part / max(whole, 1)
    return f"{share:.0f} %" if share in (0, 100) else f"{share:.3g} %"


def _cards(facts: ScanFacts) -> list[dict[str, Any]]:
    counts = facts.counts
    shown = {"read": counts["read"], **_parts(facts)}
    if not shown["suspect"]:
        del shown["suspect"]
    return [
        {"kind": kind, "n": n, "share": "" if kind == "read" else _share(n, counts["read"])}
        for kind, n in shown.items()
    ]


def _parts(facts: ScanFacts) -> dict[str, int]:
    """The records by what became of them; a record that is suspect and was repaired counts as repaired."""
    counts = facts.counts
    suspect = min(facts.n_suspects_kept, counts["clean"] - counts["repaired"])
    return {
        "untouched": counts["clean"] - counts["repaired"] - suspect,
        "repaired": counts["repaired"],
        "suspect": suspect,
        "quarantined": counts["quarantined"],
    }


def _flow(facts: ScanFacts) -> dict[str, Any]:
    """Two bars of 1,000: all records by what became of them, and the quarantined ones by their strongest reason."""
    bars = _bars([(kind, n) for kind, n in _parts(facts).items() if n], gap=3)
    reasons = list(facts.reasons.items())
    summaries = {rule["id"]: rule["summary"] for rule in facts.rules}
    shown = _bars(reasons[:_MOST_REASONS], gap=2, whole=sum(facts.reasons.values()))
    for item in shown:
        item["summary"] = summaries.get(item["name"], "")
    last = bars[-1] if bars else {"x": 0, "w": 0}
    return {
        "bars": bars,
        "reasons": shown,
        "rest": sum(n for _, n in reasons[_MOST_REASONS:]),
        "from": last["x"],
        "to": last["x"] + last["w"],
    }


def _bars(counts: Sequence[tuple[str, int]], *, gap: int, whole: int | None = None) -> list[dict[str, Any]]:
    """Side by side over 1,000 units, none thinner than can be seen."""
    total = whole or sum(n for _, n in counts) or 1
    room = 1000 - gap * max(len(counts) - 1, 0)
    widths = [max(_THINNEST, room * n / total) for _, n in counts]
    shrink = min(1.0, room / max(sum(widths), 1))
    bars, at = [], 0.0
    for (name, n), width in zip(counts, widths, strict=True):
        bars.append({"name": name, "n": n, "x": round(at, 1), "w": round(width * shrink, 1)})
        at += width * shrink + gap
    return bars


def _steps(facts: ScanFacts, n_shown: int) -> Iterable[Markup]:
    counts = facts.counts
    out = escape(facts.place or str(facts.out))
    code = Markup("<code>{}</code>").format
    yield in_both("step.train", code=code(f'datasets.load_from_disk("{out}/clean")'))
    if counts["quarantined"]:
        first = next(iter(facts.reasons))
        yield in_both("step.review", rule=code(first), code=code(f"cleanse release {out} --from decisions.json"))
    planted = sum(found["verdict"] == "quarantined" for found in facts.triggers)
    if planted:
        yield in_both("step.triggers", n=planted, link=_link("#triggers", "step.triggers.link"))
    if facts.n_suspects_kept:
        yield in_both("step.suspects", n=facts.n_suspects_kept, link=_link("#state=suspect", "step.suspects.link"))
        if facts.summary["configuration"].get("probe") is None:
            yield in_both("step.probe", code=code("--probe none"))
    if counts["repaired"]:
        yield in_both("step.repairs", n=counts["repaired"], link=_link("#state=repaired", "step.repairs.link"))
    if n_shown < counts["quarantined"]:
        yield in_both("step.large", n=counts["quarantined"], code=code(f"cleanse review {out}"))


def _link(target: str, key: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(target, in_both(key))


def _rules(facts: ScanFacts, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rules with a few of their findings."""
    examples: dict[str, list[dict[str, str]]] = {}
    for record in records:
        for finding in record["findings"]:
            found = examples.setdefault(finding["rule"], [])
            if len(found) < _EXAMPLES and record["id"] not in {example["id"] for example in found}:
                excerpt = finding.get("excerpt", "")
                found.append({"id": record["id"], "message": finding["message"], "excerpt": excerpt})
    return [{**rule, "examples": examples.get(rule["id"], [])} for rule in facts.rules]


def _batches(facts: ScanFacts) -> list[dict[str, Any]]:
    found = findings_by_rule(facts.findings_path, "probe.batch", _MOST_BATCHES)
    found.sort(key=lambda item: -(item["value"] or 0.0))
    return [{**item, "id": f"{item['source']}:{item['row']}"} for item in found]


def setting_rows(values: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Nested settings as rows of a table: names joined by dots, values as text."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", text) for inner, text in setting_rows(value))
        elif isinstance(value, (list, tuple)):
            yield name, escape(", ".join(map(str, value)))[:500]
        elif value is not None:
            yield name, escape(f"{value:.6g}" if isinstance(value, float) else str(value))[:500]
