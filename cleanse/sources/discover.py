"""From what the user typed to the files it means."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from pyarrow import fs

from cleanse.sources.errors import SourceError
from cleanse.sources.folders import Folder, Found, LocalFolder, RemoteFolder, found_remote
from cleanse.sources.model import INPUT_FORMATS
from cleanse.sources.nature import EXTENSIONS, extension
from cleanse.sources.places import looked_up, reaching
from cleanse.storage.filesystem import is_remote, taken_apart, without_secrets

_HUB_ID = re.compile(r"(hub:)?[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+){0,2}", re.ASCII)
_LOST_SLASH = re.compile(r"[a-z][a-z0-9+.-]+:/[^/]", re.ASCII)
_SPLITS, _STATE = "dataset_dict.json", "state.json"
_SAVED = re.compile(r"(^|/)data-\d+-of-\d+\.arrow$", re.ASCII)


def find(inputs: list[str], input_format: str, out: str | None = None) -> list[Found]:
    """All files the inputs mean, in the order given, matches of a pattern or folder sorted; none twice.

    Args:
        inputs: what the user named.
        input_format: "auto", or that of all files.
        out: the output folder or URL. It may lie in a folder that is read: what a run writes is none of its inputs.

    Raises:
        SourceError: nothing is there, or nothing of a known format.
    """
    if input_format not in INPUT_FORMATS:
        raise SourceError(f"unknown input format {input_format!r}: expected one of {', '.join(INPUT_FORMATS)}")
    if not inputs:
        raise SourceError("no input: expected a file, a folder, a pattern, a hub id, or - for standard input")
    found: dict[str, Found] = {}
    written = None if out is None else _comparable(out) + "/"
    for text in inputs:
        for item in _find(text.removeprefix("file://"), input_format, written):
            if item.path and _lies_in(item.path, written):
                continue
            if not _is_utf8(item.name):
                raise SourceError(f"{item.name!a}: expected a name that is UTF-8; rename the file")
            found.setdefault(_same_file(item), item)
    if not found:
        raise SourceError(f"{', '.join(inputs)}: nothing but this scan's own output lies there")
    return list(found.values())


def _lies_in(path: str, written: str | None) -> bool:
    """Whether a file or folder is, or lies in, the output folder (with a slash at its end)."""
    return written is not None and f"{_comparable(path)}/".startswith(written)


def _comparable(path: str) -> str:
    """The place of a file or folder, without links or parameters."""
    if not is_remote(path):
        return os.path.realpath(path)
    protocol, root, inside, _ = taken_apart(path)
    return f"{protocol}://{root}{inside.rstrip('/')}"


def _same_file(item: Found) -> str:
    """What two names of one file have in common."""
    return item.path if is_remote(item.path) else os.path.realpath(item.path) if item.path else item.name


def _find(text: str, input_format: str, written: str | None) -> Iterator[Found]:
    if text == "-":
        yield Found("-", origin="stdin")
    elif input_format == "hub" or text.startswith("hub:"):
        yield Found(text, origin="hub")
    elif is_remote(text):
        yield from _remote(text, input_format)
    elif Path(text).is_dir():
        yield from _in_folder(LocalFolder(Path(text)), input_format)
    elif Path(text).exists():
        yield Found(text, text)
    elif glob.has_magic(text):
        yield from _matching(text, input_format, written)
    elif _HUB_ID.fullmatch(text) and extension(text) not in EXTENSIONS:
        yield Found(text, origin="hub")
    else:
        raise SourceError(
            f"{text}: a URL that lost a slash, as it does in a Path: give it as text"
            if _LOST_SLASH.match(text)
            else f"{text}: no such file or folder; expected a path, a pattern, a URL, a hub id (owner/name), or - for "
            "standard input"
        )


def _matching(pattern: str, input_format: str, written: str | None) -> Iterator[Found]:
    """The files, and those of the folders, that match a pattern of this machine."""
    matched = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path.glob wants a relative pattern
    if not matched:
        raise _no_match(pattern)
    for match in matched:
        path = Path(match)
        if not path.is_dir():
            yield Found(match, match)
        elif not _lies_in(match, written):  # an output folder that is still empty would be no input at all
            yield from _in_folder(LocalFolder(path), input_format)


def _remote(url: str, input_format: str) -> Iterator[Found]:
    """What a URL means, in the same order of meanings as a path."""
    with reaching(url):
        filesystem, place = looked_up(url)
        info = filesystem.get_file_info(place)
    if info.type is not fs.FileType.NotFound:
        meant = [(url, info)]
    elif glob.has_magic(taken_apart(url)[2]):
        from cleanse.sources.patterns import matches  # noqa: PLC0415 - rarely needed

        meant = matches(url)
        if not meant:
            raise _no_match(without_secrets(url))
    else:
        raise SourceError(
            f"{without_secrets(url)}: no such file or folder; expected the URL of a file, of a folder, or a pattern: "
            "check its spelling, and that your credentials may read it"
        )
    for each, about in meant:
        yield from [found_remote(each, about)] if about.is_file else _in_folder(RemoteFolder(each), input_format)


def _no_match(pattern: str) -> SourceError:
    return SourceError(f"{pattern}: no file matches this pattern; check the folder, and quote the pattern")


def _in_folder(folder: Folder, input_format: str) -> Iterator[Found]:
    """The files of a ``save_to_disk`` folder as its state.json lists them; else all files of known formats."""
    splits, state = folder.read(_SPLITS), folder.read(_STATE)
    if splits is not None:
        for split in _strings(splits, "splits", f"{folder.name}/{_SPLITS}"):
            yield from _in_folder(folder.below(split), input_format)
        return
    if state is not None:
        place = f"{folder.name}/{_STATE}"
        if _strings(state, "_indices_data_files", place, required=False):
            raise SourceError(f"{folder.name}: has an indices mapping; expected a folder written by save_to_disk")
        for name in _strings(state, "_data_files", place):
            found = folder.member(name)
            if found is None:
                raise SourceError(f"{folder.name}/{name}: listed in {place} but not there; copy the whole folder")
            yield found
        return
    files = folder.files()
    known = [file for file in files if extension(file.name) in EXTENSIONS or input_format != "auto"]
    if any(_SAVED.search(file.name) for file in files) and folder.read("dataset_info.json") is not None:
        raise SourceError(
            f"{folder.name}: a folder written by save_to_disk, but {_STATE}, which lists its files, is missing; "
            f"copy the whole folder, or name the files: {folder.name}/*.arrow"
        )
    if not known:
        extensions = " ".join(sorted(EXTENSIONS))
        raise SourceError(
            f"{folder.name}: no file of a known format in this folder; expected {extensions} (or .gz, .zst, .bz2, .xz)"
        )
    yield from known


def _is_utf8(name: str) -> bool:
    return name == name.encode("utf-8", "replace").decode()  # other bytes come as lone surrogates


def _strings(content: bytes, key: str, place: str, *, required: bool = True) -> list[str]:
    try:
        value = json.loads(content).get(key) or []
        names = [v["filename"] if isinstance(v, dict) else v for v in value]
    except (ValueError, AttributeError, KeyError, TypeError):
        names = [None]
    if not all(isinstance(name, str) for name in names) or (required and not names):
        raise SourceError(f"{place}: expected {key!r} with file names, as datasets.save_to_disk writes it")
    return [str(name) for name in names]
