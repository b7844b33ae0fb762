"""From what the user typed to the files it means."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cleanse.sources.errors import SourceError
from cleanse.sources.model import INPUT_FORMATS
from cleanse.sources.nature import EXTENSIONS, extension

_HUB_ID = re.compile(r"(hub:)?[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+){0,2}", re.ASCII)


@dataclass(frozen=True)
class Found:
    """A file to read, before its kind is known. ``hub`` and ``stdin`` have no file yet."""

    name: str
    path: str = ""
    origin: str = "file"  # file, stdin or hub


def find(inputs: list[str], input_format: str) -> list[Found]:
    """All files the inputs mean, in the order given, matches of a pattern or folder sorted; none twice.

    Raises:
        SourceError: nothing is there, or nothing of a known format.
    """
    if input_format not in INPUT_FORMATS:
        raise SourceError(f"unknown input format {input_format!r}: expected one of {', '.join(INPUT_FORMATS)}")
    if not inputs:
        raise SourceError("no input: expected a file, a folder, a pattern, a hub id, or - for standard input")
    found: dict[str, Found] = {}
    for text in inputs:
        for item in _find(text, input_format):
            if not _is_utf8(item.name):
                raise SourceError(f"{item.name!a}: expected a name that is UTF-8; rename the file")
            found.setdefault(os.path.realpath(item.path) if item.path else item.name, item)
    return list(found.values())


def _find(text: str, input_format: str) -> Iterator[Found]:
    if text == "-":
        yield Found("-", origin="stdin")
    elif input_format == "hub" or text.startswith("hub:"):
        yield Found(text, origin="hub")
    elif Path(text).is_dir():
        yield from _in_folder(Path(text), input_format)
    elif Path(text).exists():
        yield Found(text, text)
    elif glob.has_magic(text):
        matches = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - Path.glob wants a relative pattern
        if not matches:
            raise SourceError(f"{text}: no file matches this pattern; check the folder, and quote the pattern")
        for match in matches:
            yield from _in_folder(Path(match), input_format) if Path(match).is_dir() else [Found(match, match)]
    elif _HUB_ID.fullmatch(text) and extension(text) not in EXTENSIONS:
        yield Found(text, origin="hub")
    else:
        raise SourceError(
            f"{text}: no such file or folder; expected a path, a pattern, a hub id (owner/name), or - for "
            "standard input"
        )


def _in_folder(folder: Path, input_format: str) -> Iterator[Found]:
    """The files of a ``save_to_disk`` folder as its state.json lists them; else all files of known formats."""
    if (folder / "dataset_dict.json").is_file():
        for split in _strings(folder / "dataset_dict.json", "splits"):
            yield from _in_folder(_inside(folder, split), input_format)
        return
    if (folder / "state.json").is_file():
        if _strings(folder / "state.json", "_indices_data_files", required=False):
            raise SourceError(f"{folder}: has an indices mapping; expected a folder written by save_to_disk")
        for name in _strings(folder / "state.json", "_data_files"):
            path = str(_inside(folder, name))
            if not Path(path).is_file():
                raise SourceError(f"{path}: listed in {folder / 'state.json'} but not there; copy the whole folder")
            yield Found(path, path)
        return
    if (folder / "dataset_info.json").is_file() and any(folder.glob("data-*-of-*.arrow")):
        raise SourceError(
            f"{folder}: a folder written by save_to_disk, but state.json, which lists its files, is missing; "
            f"copy the whole folder, or name the files: {folder}/*.arrow"
        )
    paths = sorted(
        str(Path(root, name))
        for root, _, names in os.walk(folder)
        for name in names
        if not _hidden(Path(root).relative_to(folder), name)
    )
    known = [path for path in paths if extension(path) in EXTENSIONS or input_format != "auto"]
    if not known:
        extensions = " ".join(sorted(EXTENSIONS))
        raise SourceError(
            f"{folder}: no file of a known format in this folder; expected {extensions} (or .gz, .zst, .bz2, .xz)"
        )
    for path in known:
        yield Found(path, path)


def _is_utf8(name: str) -> bool:
    return name == name.encode("utf-8", "replace").decode()  # other bytes come as lone surrogates


def _hidden(folder: Path, name: str) -> bool:
    return any(part.startswith((".", "_")) for part in (*folder.parts, name))


def _inside(folder: Path, name: str) -> Path:
    """A member of a folder. Raises SourceError for names that lead out of it."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise SourceError(f"{folder}: lists {name!r}, which lies outside of the folder")
    return path


def _strings(path: Path, key: str, *, required: bool = True) -> list[str]:
    try:
        value = json.loads(path.read_bytes()).get(key) or []
        names = [v["filename"] if isinstance(v, dict) else v for v in value]
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        names = [None]
    if not all(isinstance(name, str) for name in names) or (required and not names):
        raise SourceError(f"{path}: expected {key!r} with file names, as datasets.save_to_disk writes it")
    return [str(name) for name in names]
