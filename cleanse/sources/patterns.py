"""Patterns in URLs, matched as ``glob.glob(..., recursive=True)`` matches those in paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from glob import has_magic
from itertools import takewhile

from pyarrow import fs

from cleanse.sources.folders import within
from cleanse.sources.places import looked_up, reaching
from cleanse.storage.filesystem import joined, taken_apart

_ANY_DEPTH = "**"


def matches(url: str) -> list[tuple[str, fs.FileInfo]]:
    """URLs of the files and folders that a pattern (with a magic part) means, sorted.

    Only what the pattern leaves open is listed.

    Raises SourceError where that is not possible.
    """
    protocol, root, path, parameters = taken_apart(url)
    parts = path.strip("/").split("/")
    fixed = list(takewhile(lambda part: not has_magic(part), parts))
    base = f"{protocol}://{'/'.join([root, *fixed])}{parameters}"
    with reaching(url):
        filesystem, place = looked_up(base)
        found = {within(place, info.path): info for info in _walk(filesystem, place, parts[len(fixed) :])}
    if path.endswith("/"):  # folders are meant
        found = {name: info for name, info in found.items() if info.type is fs.FileType.Directory}
    return [(joined(base, name) if name else base, found[name]) for name in sorted(found)]


def _walk(filesystem: fs.FileSystem, place: str, parts: Sequence[str]) -> Iterator[fs.FileInfo]:
    first, rest = parts[0], parts[1:]
    if not has_magic(first):
        info = filesystem.get_file_info(f"{place.rstrip('/')}/{first}")
        found = [] if info.type is fs.FileType.NotFound else [info]
    elif first == _ANY_DEPTH:
        found, rest = _at_any_depth(filesystem, place, parts), []
    else:
        found = [info for info in _listed(filesystem, place) if _fits([within(place, info.path)], [first])]
    for info in found:
        if not rest:
            yield info
        elif info.type is fs.FileType.Directory:
            yield from _walk(filesystem, info.path, rest)


def _at_any_depth(filesystem: fs.FileSystem, place: str, parts: Sequence[str]) -> list[fs.FileInfo]:
    """What fits at or below a folder: all of it must be listed anyway."""
    here = fs.FileInfo(place, fs.FileType.Directory)
    everything = (here, *_listed(filesystem, place, recursive=True))
    return [info for info in everything if _fits([name for name in within(place, info.path).split("/") if name], parts)]


def _listed(filesystem: fs.FileSystem, place: str, *, recursive: bool = False) -> list[fs.FileInfo]:
    found: list[fs.FileInfo] = filesystem.get_file_info(
        fs.FileSelector(place, recursive=recursive, allow_not_found=True)
    )
    return found


def _fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the parts of a path fit those of a pattern. What begins with a dot must be named with it."""
    if not parts:
        return not names
    first, rest = parts[0], parts[1:]
    if first == _ANY_DEPTH:
        return _fits(names, rest) or (bool(names) and not names[0].startswith(".") and _fits(names[1:], parts))
    if not names or (names[0].startswith(".") and not first.startswith(".")):
        return False
    return fnmatchcase(names[0], first) and _fits(names[1:], rest)
