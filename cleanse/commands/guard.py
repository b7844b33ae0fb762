"""Errors as a user meets them: one message, the right exit code, and no traceback for a mistake of theirs."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import click

from cleanse.errors import CleanseError
from cleanse.safe_text import escape


class Command(click.Command):
    """A command whose foreseeable errors end in a message on stderr (with ``--json`` also as JSON on stdout)."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; ends the process with the exit code that belongs to an error."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            _tell("stopped. The same command continues where it stopped", 1, ctx)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is explained here
            message, code, trace = _explained(error)
            if trace:
                click.echo(trace, err=True)
            _tell(message, code, ctx)


class Group(click.Group):
    """Commands that are guarded."""

    command_class = Command


def _tell(message: str, code: int, ctx: click.Context) -> None:
    shown = escape(message)
    click.echo(f"cleanse: {shown}", err=True)
    if ctx.params.get("as_json"):
        import orjson  # noqa: PLC0415 - only needed here

        click.echo(orjson.dumps({"error": shown, "exit_code": code}))
    sys.exit(code)


def _explained(error: Exception) -> tuple[str, int, str]:
    """Message, exit code, and a traceback where the fault is the program's ("" elsewhere)."""
    from cleanse.engines.failure import Failure, InternalError  # noqa: PLC0415 - these stay out of --help
    from cleanse.formats import FormatError  # noqa: PLC0415
    from cleanse.rulepacks import PackError  # noqa: PLC0415
    from cleanse.sources import SourceError  # noqa: PLC0415

    if isinstance(error, (FormatError, PackError, SourceError)):
        return str(error), 2, ""
    if isinstance(error, InternalError):
        return str(error), error.exit_code, error.trace
    if isinstance(error, CleanseError):
        return str(error), error.exit_code, ""
    failure = Failure.of(error)
    return failure.message, 1, "".join(traceback.format_exception(error)) if failure.trace else ""
