"""The result of a scan, for people and for programs."""

from __future__ import annotations

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cleanse.safe_text import escape
from cleanse.summary import ScanResult

_MOST_RULES = 4
_MOST_SOURCES = 3


def print_result(result: ScanResult, *, as_json: bool, every_rule: bool = False) -> None:
    """Prints the lines that matter: counts, the strongest rules, where things are. What comes from data is escaped."""
    if as_json:
        answer = {"out": result.place, "already_done": result.already_done, **result.summary}
        click.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{result.read:,} records read, {result.clean:,} clean ({result.repaired:,} of them repaired), "
        f"{result.quarantined:,} quarantined; {result.suspected - result.quarantined:,} more are suspect and stay clean"
    )
    if result.rules:
        console.print(_rules(result, len(result.rules) if every_rule else _MOST_RULES))
    n_sources = len(result.summary["sources"])
    if n_sources > 1:
        console.print(_sources(result, n_sources if every_rule else _MOST_SOURCES))
    for name, what in _places(result).items():
        console.print(Text(f"{what:22} {escape(f'{result.place}/{name}')}"))


def _rules(result: ScanResult, most: int) -> Table:
    table = Table("rule", "action", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("findings", "records", "quarantined"):
        table.add_column(name, justify="right")
    rules = result.summary["rules"]
    for rule, tally in list(rules.items())[:most]:
        counts = (f"{tally[name]:,}" for name in ("findings", "records", "quarantined"))
        table.add_row(Text(escape(rule)), Text(escape(tally["action"])), *counts)
    if len(rules) > most:
        table.add_row(f"... and {len(rules) - most:,} more: --all")
    return table


def _sources(result: ScanResult, most: int) -> Table:
    table = Table("source", box=None, padding=(0, 2, 0, 0), header_style="bold")
    names = ("read", "clean", "quarantined", "suspected", "repaired")
    for name in names:
        table.add_column(name, justify="right")
    sources = result.summary["sources"]
    for source in sources[:most]:
        table.add_row(Text(escape(source["name"])), *(f"{source[name]:,}" for name in names))
    if len(sources) > most:
        table.add_row(f"... and {len(sources) - most:,} more: --all")
    return table


def _places(result: ScanResult) -> dict[str, str]:
    places = {"report.html": "the report", "clean": "clean records", "quarantine": "quarantined records"}
    emitted = {"clean.jsonl": "clean, as JSON lines", "clean.parquet": "clean, as Parquet"}
    kinds = result.summary["configuration"]["emit"]
    return {**places, **{name: what for name, what in emitted.items() if name.removeprefix("clean.") in kinds}}
