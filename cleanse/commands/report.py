"""The page of a scan or a replay: written where it is missing or asked for, and opened."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from cleanse.atomic import read_json
from cleanse.report import FILE, write_replay_report, write_report
from cleanse.report.replay_page import CAPSULE, is_capsule
from cleanse.safe_text import escape


def show_page(out: Path, *, target: Path | None, open_page: bool) -> None:
    """Makes sure that the page exists, and opens it where asked."""
    page = target or out / FILE
    if target is not None or not page.exists():
        (write_replay_report if is_capsule(out) else write_report)(out, page)
        click.echo(f"cleanse: wrote {escape(str(page))}", err=True)
    if open_page and not webbrowser.open(page.resolve().as_uri()):
        click.echo(f"cleanse: no browser to be found here; the page is {escape(str(page.resolve()))}", err=True)


def print_replayed(folder: Path) -> None:
    """The diagnosis of a capsule, and where its page is."""
    figures = read_json(folder / CAPSULE)["figures"]
    click.echo(escape(f"{figures['diagnosis'].replace('_', ' ')}: {figures['evidence']}"))
    click.echo(escape(f"{figures['remedy']} {figures['resume']}"))
    click.echo(f"{'the report':22} {escape(str(folder / FILE))}")
