"""Files that exist whole or not at all, however the process ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import orjson

TEMPORARY = ".tmp"


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Moves a file or folder within one disk and makes the move durable.

    A move that an earlier, killed process already made is accepted, so that a list of moves can be repeated.
    Raises FileNotFoundError when neither source nor target is there.
    """
    if not source.exists() and target.exists():
        return
    source.rename(target)
    _fsync(target.parent)


@contextmanager
def committed(path: Path) -> Iterator[Path]:
    """Gives a temporary path to write to; it becomes ``path`` only when the block ends without an error.

    The bytes are on disk (fsync) before the name is, so that a file that exists is complete even after the
    machine lost its power. What a killed process left behind ends in ``.tmp`` and is swept by the next run.
    Two processes that write the same file at once (a cluster took the first for dead) each have a path of their own.
    """
    temporary = path.with_name(f"{path.name}.{token_hex(6)}{TEMPORARY}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield temporary
        _fsync(temporary)
        temporary.replace(path)
        _fsync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Commits ``value`` as indented JSON."""
    with committed(path) as temporary:
        temporary.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n")


def read_json(path: Path) -> Any:
    """The value of a JSON file. Raises FileNotFoundError, and ValueError where it is not JSON."""
    return orjson.loads(path.read_bytes())


def sweep(folder: Path) -> None:
    """Removes what a killed process had not committed."""
    for path in sorted(folder.rglob("*" + TEMPORARY)):
        path.unlink(missing_ok=True)
