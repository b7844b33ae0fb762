"""From what the user typed to the files it means, each with its kind."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cleanse.sources.errors import SourceError
from cleanse.sources.model import INPUT_FORMATS, KINDS
from cleanse.sources.streams import COMPRESSIONS, open_stream, sniff_compression

_EXTENSIONS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonlines": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
}
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"FEA1": "feather version 1"}
_ARCHIVES = {b"PK\x03\x04": "zip", b"7z\xbc\xaf": "7z", b"\x80\x02}": "pickle", b"\x80\x04\x95": "pickle"}
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_HUB_ID = re.compile(r"(hub:)?[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+){0,2}", re.ASCII)
_HEAD = 64 << 10  # bytes that are looked at to tell the kind of a file
_MOSTLY = 0.8  # share of the code units
_SPACE = b" \t\r\n"


@dataclass(frozen=True)
class Found:
    """A file to read, before its kind is known. ``hub`` and ``stdin`` have no file yet."""

    name: str
    path: str = ""
    origin: str = "file"  # file, stdin or hub


@dataclass(frozen=True)
class Nature:
    """What the first bytes (and the name) of a file say about it."""

    kind: str
    compression: str | None
    encoding: str = ""  # set where it is not UTF-8


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
            found.setdefault(os.path.realpath(item.path) if item.path else item.name, item)
    return list(found.values())


def _find(text: str, input_format: str) -> Iterator[Found]:
    if text == "-":
        yield Found("-", origin="stdin")
    elif input_format == "hub" or text.startswith("hub:"):
        yield Found(text, origin="hub")
    elif os.path.isdir(text):
        yield from _in_folder(Path(text), input_format)
    elif os.path.exists(text):
        yield Found(text, text)
    elif glob.has_magic(text):
        matches = sorted(glob.glob(text, recursive=True))
        if not matches:
            raise SourceError(f"{text}: no file matches this pattern; check the folder, and quote the pattern")
        for match in matches:
            yield from _in_folder(Path(match), input_format) if os.path.isdir(match) else [Found(match, match)]
    elif _HUB_ID.fullmatch(text) and _extension(text)[0] not in _EXTENSIONS:
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
            if not os.path.isfile(path):
                raise SourceError(f"{path}: listed in {folder / 'state.json'} but not there; copy the whole folder")
            yield Found(path, path)
        return
    paths = sorted(
        os.path.join(root, name)
        for root, folders, names in os.walk(folder)
        if not folders.sort()  # type: ignore[func-returns-value]
        for name in names
        if not _hidden(Path(root).relative_to(folder), name)
    )
    known = [path for path in paths if _extension(path)[0] in _EXTENSIONS or input_format != "auto"]
    if not known:
        extensions = " ".join(sorted(_EXTENSIONS))
        raise SourceError(f"{folder}: no file of a known format in this folder; expected {extensions} (or .gz, .zst)")
    for path in known:
        yield Found(path, path)


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


def _extension(name: str) -> tuple[str, str | None]:
    """The extension that tells the format, and the compression a second one tells."""
    base, last = os.path.splitext(name.lower())
    if last in COMPRESSIONS:
        return os.path.splitext(base)[1], COMPRESSIONS[last]
    return last, None


def nature(name: str, path: str, input_format: str = "auto") -> Nature:
    """Kind, compression and encoding of a file. Content decides before the name does.

    Raises:
        SourceError: unreadable, an archive, or of no known format.
    """
    try:
        head = _head(path, None)
        compression = sniff_compression(head)
        if compression:
            head = _head(path, compression)
    except OSError as error:
        raise SourceError(f"{name}: cannot be read ({error.strerror or error}); check that it is a file") from error
    for magic, kind in (_MAGIC | _ARCHIVES).items():
        if head.startswith(magic):
            if kind not in KINDS:
                raise SourceError(
                    f"{name}: a {kind} file; expected JSONL, JSON, CSV, Parquet, Arrow or text: convert it"
                )
            return Nature(kind, compression)
    encoding = _UTF16.get(head[:2], "") or _utf16_without_mark(head)
    extension, _ = _extension(name)
    kind = input_format if input_format in KINDS else _EXTENSIONS.get(extension, "")
    text = head.decode(encoding, "ignore").encode().removeprefix(b"\xef\xbb\xbf") if encoding else head
    text = text.removeprefix(b"\xef\xbb\xbf")
    if kind in ("parquet", "arrow") and head and not (kind == "arrow" and head[:4] in (b"\xff\xff\xff\xff",)):
        raise SourceError(f"{name}: does not begin like a {kind.capitalize()} file: damaged, or another format")
    if input_format == "auto" and kind in ("", "json", "jsonl"):
        kind = _sniff_json(text, kind)
    if not kind and head[:4] == b"\xff\xff\xff\xff":
        return Nature("arrow", compression)
    if not kind:
        extensions = " ".join(sorted(_EXTENSIONS))
        raise SourceError(f"{name}: unknown format; expected {extensions} (or .gz, .zst), or name the input format")
    return Nature(kind, compression, encoding)


def _head(path: str, compression: str | None) -> bytes:
    stream = open_stream(path, compression)
    try:
        return stream.read(_HEAD)
    finally:
        stream.close()


def _utf16_without_mark(head: bytes) -> str:
    """UTF-16 shows by a bracket beside a zero byte, or, where it is mostly ASCII, by every second byte being zero."""
    if head[:2] in (b"{\0", b"[\0"):
        return "utf-16-le"
    if head[:2] in (b"\0{", b"\0["):
        return "utf-16-be"
    n_units = min(len(head), 512) // 2
    n_even, n_odd = head[: 2 * n_units : 2].count(0), head[1 : 2 * n_units : 2].count(0)
    if n_units > 1 and max(n_even, n_odd) > _MOSTLY * n_units and min(n_even, n_odd) < (1 - _MOSTLY) * n_units:
        return "utf-16-le" if n_odd > n_even else "utf-16-be"
    return ""


def _sniff_json(text: bytes, kind: str) -> str:
    """jsonl where the first line is a whole value, json where values span lines or stand in an array."""
    bare = text.lstrip(_SPACE)
    if not bare:
        return kind or "jsonl"
    if bare[:1] not in (b"{", b"["):
        return kind
    line, newline, _ = bare.partition(b"\n")
    if kind == "jsonl" and bare[:1] == b"{":
        return kind
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        first = None
    if bare[:1] == b"[":
        is_rows = kind == "jsonl" and isinstance(first, list) and bool(newline)
        return "jsonl" if is_rows else "json"
    if isinstance(first, dict) or (not newline and len(text) >= _HEAD):
        return "jsonl"
    return "json"
