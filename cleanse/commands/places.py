"""Arguments that name the folder of a finished scan."""

from __future__ import annotations

from pathlib import Path

import click

from cleanse.errors import UsageError
from cleanse.safe_text import escape


def finished_scan(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    """A folder of this machine. Raises click.BadParameter for a URL, with a word on what to do."""
    from cleanse.storage.filesystem import on_disk  # noqa: PLC0415 - brings Arrow's file systems

    try:
        return on_disk(value)
    except UsageError as error:
        raise click.BadParameter(escape(str(error)), ctx, param) from error
