"""``cleanse replay``: options in, the diagnosis on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console

from cleanse.commands.show_replay import print_replay, print_rows
from cleanse.errors import CleanseError, UsageError
from cleanse.replaying.call import replay, rows_of_step
from cleanse.replaying.steps import OrderUnknown


def run_replay(
    data: tuple[str, ...],
    *,
    model: str | None,
    where: Mapping[str, Any],
    order: Mapping[str, Any],
    setting: tuple[str, ...],
    how: Mapping[str, Any],
    rules: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Replays and prints; without a model, prints the rows of the step."""
    settings = {k: v for k, v in order.items() if v is not None} | dict(map(_setting, setting))
    places: dict[str, Any] = {**where, "settings": settings}
    packs = rules or ("default",)
    with ExitStack() as stack:
        if not quiet and sys.stderr.isatty():
            stack.enter_context(Console(stderr=True).status("replaying"))
        with _told():
            if model is None:
                located, content = rows_of_step(data, rules=packs, **places)
            else:
                result = replay(data, model=model, rules=packs, out=out, **places, **how)
    if quiet and not as_json:
        return
    if model is not None and as_json:
        click.echo(orjson.dumps(result.to_json(), option=orjson.OPT_INDENT_2))
    elif model is not None:
        print_replay(result, out)
    elif as_json:
        rules_of = {str(row): [r.rule for r in found.reasons] for row, found in content.items()}
        click.echo(orjson.dumps({**located.to_json(), "rules": rules_of}, option=orjson.OPT_INDENT_2))
    else:
        print_rows(located, content)


@contextmanager
def _told() -> Iterator[None]:
    """What the library says about values and files is a user's mistake here, and no failure of the program."""
    try:
        yield
    except OrderUnknown as error:
        raise CleanseError(str(error)) from error
    except ValueError as error:
        if isinstance(error, UnicodeError):
            raise
        raise UsageError(str(error)) from error


def _setting(text: str) -> tuple[str, Any]:
    """``name=value`` of --set: numbers, true and false as such."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text}: expected NAME=VALUE")
    known: dict[str, Any] = {"true": True, "false": False}
    read = int(value) if value.removeprefix("-").isdecimal() else value
    return name.replace("-", "_"), known.get(value.lower(), read)
