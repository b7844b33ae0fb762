"""What ``--help`` says: every command, every option, and nothing that is not so."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from cleanse.cli import main
from cleanse.formats import FORMATS


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        yield (*path, name), command


ALL = list(commands(main))


@pytest.mark.parametrize(("path", "command"), ALL, ids=["-".join(path) for path, _ in ALL])
def test_every_command_and_option_is_explained(path: tuple[str, ...], command: click.Command) -> None:
    shown = CliRunner().invoke(main, [*path, "--help"])
    assert shown.exit_code == 0
    assert command.help
    assert command.help.strip().split("\n\n")[0].endswith((".", ".)", "?"))
    unexplained = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
    assert not unexplained


def test_the_formats_that_are_named_exist() -> None:
    (option,) = [p for p in main.commands["scan"].params if p.name == "format_"]
    named = option.help.split(": ")[1].rstrip(".").split(", ")
    assert set(named) == set(FORMATS) - {"unknown"}
