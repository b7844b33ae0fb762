"""The page of a scan on localhost, until it is interrupted."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from cleanse.report.server import serve


def run_review(out: Path, *, port: int, open_page: bool) -> None:
    """Serves the review of ``out`` and prints its address."""

    def ready(address: str) -> None:
        click.echo(address)
        click.echo("cleanse: open this address; decisions go to decisions.json; stop with Ctrl-C", err=True)
        if open_page:
            webbrowser.open(address)

    serve(out, port=port, ready=ready)
