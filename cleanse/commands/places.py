"""Arguments that name the folder of a finished scan."""

from __future__ import annotations

from pathlib import Path

import click

from cleanse.errors import UsageError
from cleanse.safe_text import escape


class FinishedScan(click.ParamType[Path]):
    """A folder of this machine. A URL is refused with a word on what to do."""

    name = "directory"

    def convert(self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path. Raises click.BadParameter."""
        from cleanse.storage.filesystem import on_disk  # noqa: PLC0415 - brings Arrow's file systems

        try:
            return on_disk(str(value))
        except UsageError as error:
            self.fail(escape(str(error)), param, ctx)
