"""What the first bytes of a file, and its name, say about it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cleanse.sources.errors import SourceError
from cleanse.sources.model import KINDS
from cleanse.sources.streams import COMPRESSIONS, open_stream, sniff_compression

EXTENSIONS = {
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
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}
_FOREIGN = {
    b"FEA1": "feather version 1",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf": "7z",
    b"\x80\x02}": "pickle",
    b"\x80\x04\x95": "pickle",
}
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_UTF8_MARK = b"\xef\xbb\xbf"
_HEAD = 64 << 10  # bytes that are looked at
_MOSTLY = 0.8  # share of the code units
_SPACE = b" \t\r\n"


@dataclass(frozen=True)
class Nature:
    """How a file is to be read."""

    kind: str  # one of KINDS
    compression: str | None
    encoding: str = ""  # set where it is not UTF-8


def extension(name: str) -> str:
    """The extension that tells the format: behind it there may be one that tells the compression."""
    *_, inner, last = ["", "", *Path(name.lower()).suffixes]
    return inner if last in COMPRESSIONS else last


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
    foreign = _by_magic(head, _FOREIGN)
    if foreign:
        raise SourceError(f"{name}: a {foreign} file; expected JSONL, JSON, CSV, Parquet, Arrow or text: convert it")
    kind = _by_magic(head, _MAGIC)
    if kind:
        return Nature(kind, compression)
    kind = input_format if input_format in KINDS else EXTENSIONS.get(extension(name), "")
    if kind in _MAGIC.values() and head:
        raise SourceError(f"{name}: does not begin like a {kind.capitalize()} file: damaged, or another format")
    encoding = _UTF16.get(head[:2], "") or _utf16_without_mark(head)
    if input_format == "auto" and kind in ("", "json", "jsonl"):
        text = head.decode(encoding, "ignore").lstrip("\ufeff").encode("utf-8", "ignore") if encoding else head
        kind = _sniff_json(text.removeprefix(_UTF8_MARK), kind)
    if not kind:
        known = " ".join(sorted(EXTENSIONS))
        raise SourceError(
            f"{name}: unknown format; expected {known} (or .gz, .zst, .bz2, .xz), or name the input format"
        )
    return Nature(kind, compression, encoding)


def _head(path: str, compression: str | None) -> bytes:
    stream = open_stream(path, compression)
    try:
        return stream.read(_HEAD)
    finally:
        stream.close()


def _by_magic(head: bytes, magics: dict[bytes, str]) -> str:
    return next((kind for magic, kind in magics.items() if head.startswith(magic)), "")


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
    """Tells lines from values: jsonl where the first line is a whole value, json where values span lines."""
    bare = text.lstrip(_SPACE)
    if not bare:
        return kind or "jsonl"
    if bare[:1] not in (b"{", b"[") or (kind == "jsonl" and bare[:1] == b"{"):
        return kind
    line, newline, _ = bare.partition(b"\n")
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        first = None
    if bare[:1] == b"[":
        is_rows = kind == "jsonl" and isinstance(first, list) and bool(newline)
        return "jsonl" if is_rows else "json"
    return "jsonl" if isinstance(first, dict) or (not newline and len(text) >= _HEAD) else "json"
