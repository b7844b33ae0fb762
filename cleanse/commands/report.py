"""The page of a scan: written where it is missing or asked for, and opened."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from cleanse.report import FILE, write_report
from cleanse.safe_text import escape


def show_page(out: Path, *, target: Path | None, open_page: bool) -> None:
    """Makes sure that the page exists, and opens it where asked."""
    page = target or out / FILE
    if target is not None or not page.exists():
        write_report(out, page)
        click.echo(f"cleanse: wrote {escape(str(page))}", err=True)
    if open_page and not webbrowser.open(page.resolve().as_uri()):
        click.echo(f"cleanse: no browser to be found here; the page is {escape(str(page.resolve()))}", err=True)
