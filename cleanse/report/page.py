"""OUT/report.html: one file with everything in it, of bounded size, and the same for the same OUT."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import orjson
from markupsafe import Markup

from cleanse import __version__
from cleanse.atomic import committed
from cleanse.report import charts, context
from cleanse.report.choosing import choose
from cleanse.report.evidence import findings_of, probe_of
from cleanse.report.record_view import NARROW, WIDE, Widths, view
from cleanse.report.rows import Key
from cleanse.report.scan_facts import ScanFacts
from cleanse.report.scatter import probed
from cleanse.report.wording import in_both, of_rule, script_words, words
from cleanse.safe_text import escape

FILE = "report.html"
MOST_BYTES = 5_000_000
_MOST_FOR_RECORDS = 2_600_000
_MOST_FOR_POINTS = 700_000
_SECTIONS = ("overview", "rules", "records", "distributions", "probe", "triggers", "sources", "run")


def write_report(out: Path, target: Path | None = None, place: str | None = None) -> Path:
    """Writes the page of a finished scan and returns where it is.

    Where the scan's output lies in another place, ``out`` holds copies, and ``place`` is what the page calls it.

    Raises CleanseError where ``out`` holds no finished scan.
    """
    target = target or out / FILE
    html = build(ScanFacts(out, place))
    with committed(target) as temporary:
        temporary.write_bytes(html)
    return target


def build(facts: ScanFacts) -> bytes:
    """The page of one scan, with the records that tell most."""
    scatter, points = probed(facts)
    chosen = dict.fromkeys([*context.linked(facts), *choose(facts.findings_path, facts.rows)])
    records = _records(facts, list(chosen), WIDE, _MOST_FOR_RECORDS)
    shown = {record["id"] for record in records}
    behind = _records(facts, [key for key in points if key.id not in shown], NARROW, _MOST_FOR_POINTS)
    data = {"mode": "page", "run": run_id(facts), "records": records + behind, "words": script_words()}
    return render("scan.html.j2", data, context.of_scan(facts, records, scatter), live=False)


def live_values(facts: ScanFacts) -> dict[str, Any]:
    """What the review server's page says about a scan: the work of a page that decisions do not change."""
    scatter, _ = probed(facts)
    examples = _records(facts, choose(facts.findings_path, facts.rows), WIDE, _MOST_FOR_RECORDS)
    return context.of_scan(facts, examples, scatter)


def build_live(facts: ScanFacts, values: Mapping[str, Any], decisions: Sequence[Mapping[str, Any]]) -> bytes:
    """The same page for the review server, which sends the records as they are asked for."""
    data = {"mode": "live", "run": run_id(facts), "decisions": list(decisions), "words": script_words()}
    return render("scan.html.j2", data, values, live=True)


def run_id(facts: ScanFacts) -> str:
    """Tells one scan's decisions from another's where both are kept by the same browser."""
    account = [facts.summary["configuration"], facts.summary["sources"], facts.summary["counts"]]
    return hashlib.sha256(orjson.dumps(account, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def _records(facts: ScanFacts, keys: Sequence[Key], widths: Widths, most_bytes: int) -> list[dict[str, Any]]:
    """The records as the page draws them, as many as there is room for."""
    findings = findings_of(facts.findings_path, keys)
    probe = probe_of(facts.probe_path, keys)
    shown, size = [], 0
    for key in keys:
        record = view(facts.rows, key, findings[key], probe.get(key), widths)
        size += len(embedded_json(record))
        if size > most_bytes:
            break
        shown.append(record)
    return shown


def render(template: str, data: Mapping[str, Any], values: Mapping[str, Any], *, live: bool) -> bytes:
    """A page from its template. ``data`` is what the script reads, ``values`` what the template names."""
    css, js = _asset("page.css"), _asset("page.js")
    page = _environment().get_template(template)
    html = page.render(
        **{"sections": _SECTIONS, **values},
        css=Markup(css),  # noqa: S704 - our own files, read from the package
        js=Markup(js),  # noqa: S704
        csp=_policy(css, js, live=live),
        data=Markup(embedded_json(data).decode()),  # noqa: S704 - no character of it can end the element
        version=__version__,
        live=live,
    )
    return html.encode()


def embedded_json(value: Any) -> bytes:
    """JSON that can stand in a script element: nothing in it is read as markup, and nothing in it is hidden."""
    text = orjson.dumps(value)
    for byte in b"<>&":
        text = text.replace(bytes([byte]), b"\\u%04x" % byte)
    if text.isascii():
        return text
    decoded = text.decode()
    for char in sorted(set(decoded)):
        if not char.isascii() and escape(char) != char:
            units = char.encode("utf-16-be")
            decoded = decoded.replace(char, "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)))
    return decoded.encode()


def _policy(css: str, js: str, *, live: bool) -> str:
    """What the page may do: run its own script and style, and nothing else; no network but the review server's."""
    return (
        f"default-src 'none'; script-src 'sha256-{_digest(js)}'; style-src 'sha256-{_digest(css)}'; "
        f"connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("templates").joinpath(name).read_text("utf-8")


@cache
def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    found.globals.update(t=in_both, words=words(), of_rule=of_rule)
    found.filters.update(number=lambda n: f"{n:,}", short=_short, seen=lambda text: escape(str(text)))
    return found


def _short(value: float | None) -> str:
    return "" if value is None else charts.number(value)
