"""Copies of inputs that cannot be read where they are. A copy appears under its name only when complete."""

from __future__ import annotations

import codecs
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from cleanse.sources.errors import SourceError
from cleanse.sources.places import status
from cleanse.sources.streams import open_stream
from cleanse.storage.filesystem import is_remote

_CHUNK = 4 << 20


def write_whole(path: Path, chunks: Iterable[bytes]) -> int:
    """Writes a file so that it is either complete or not there; returns its size in bytes.

    Raises:
        SourceError: the spool folder cannot be written, or the disk is full.
    """
    part = path.with_name(path.name + ".part")
    size = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as out:
            for chunk in chunks:
                out.write(chunk)
                size += len(chunk)
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    except SourceError:  # of the chunks: the input cannot be read to its end
        part.unlink(missing_ok=True)
        raise
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise SourceError(
            f"{path}: cannot write a copy of the input ({error.strerror or error}); free the disk or name another "
            "output folder"
        ) from error
    return size


def spool_stdin(spool: Path, stdin: BinaryIO | None = None) -> str:
    """Copies standard input into the spool. When it is empty and an earlier run left a copy, that is used."""
    path = spool / "stdin"
    pipe = stdin or sys.stdin.buffer
    first = pipe.read(1)
    if first or not path.is_file():
        write_whole(path, _chunks(pipe, first))
    return str(path)


def stdin_sha256() -> str | None:
    """The digest of what comes through standard input, which is read to its end; None for nothing, or a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    first = sys.stdin.buffer.read(1)
    digest = hashlib.sha256()
    for chunk in _chunks(sys.stdin.buffer, first):
        digest.update(chunk)
    return digest.hexdigest() if first else None


def _chunks(pipe: BinaryIO, first: bytes) -> Iterator[bytes]:
    yield first
    while chunk := pipe.read(_CHUNK):
        yield chunk


def unpack(path: str, compression: str, spool: Path, index: int) -> str:
    """An unpacked copy of a compressed file whose format needs random access."""
    copy = _copy_path(path, spool, index)
    if not copy.is_file():
        write_whole(copy, _unpacked(path, compression))
    return str(copy)


def transcode(path: str, compression: str | None, encoding: str, spool: Path, index: int) -> str:
    """A UTF-8 copy of a text file in another encoding, without its byte order mark.

    What is wrong in the original stays visible: a code unit that is no text becomes three bytes that are no
    UTF-8, so the line that holds it is set apart.
    """
    copy = _copy_path(path, spool, index)
    if not copy.is_file():
        write_whole(copy, _transcoded(path, compression, encoding))
    return str(copy)


def _copy_path(path: str, spool: Path, index: int) -> Path:
    """Named after file, size and time, so that a changed file is copied anew."""
    found = status(path)
    where = path if is_remote(path) else os.path.realpath(path)
    key = f"{where}\0{found.n_bytes}\0{found.changed_ns}"
    return spool / f"{index:04d}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _unpacked(path: str, compression: str | None) -> Iterator[bytes]:
    stream = open_stream(path, compression)
    try:
        while chunk := stream.read(_CHUNK):
            yield chunk
    finally:
        stream.close()


def _transcoded(path: str, compression: str | None, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    at_start = True
    for chunk in _unpacked(path, compression):
        text = decoder.decode(chunk)
        if at_start and text:
            text, at_start = text.removeprefix("\ufeff"), False
        yield text.encode("utf-8", "surrogatepass")
    try:
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        yield b"\xff"  # an odd number of bytes: the last one is half a character
