"""Where the bytes of an input lie: on a disk of this machine, or in a file system that a URL names.

Readers ask here and need not know which. A place that cannot be reached is no damage of the data: reading is tried
again for a while, and then ends with a SourceError, never with fewer bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import pyarrow as pa
from pyarrow import fs

from cleanse.errors import CleanseError
from cleanse.sources.errors import SourceError
from cleanse.storage.filesystem import is_remote, opened, said, without_secrets

T = TypeVar("T")
R = TypeVar("R")

_AHEAD_LEAST, _AHEAD_MOST = 256 << 10, 4 << 20
"""Bytes asked for at least, however few are wanted: a request costs some 50 ms. More as reading goes on in sequence."""

_WINDOWS = 16  # places of a file at which reading goes on in turn, as in the columns of a Parquet file
_AT_ONCE = 16  # files in another place that are looked into together: each answer takes some 50 ms
_PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds before each new attempt
_NO_USE = (PermissionError, IsADirectoryError, NotImplementedError)
"""No attempt more will help. A file that is not found is not among these: fsspec says so of whatever goes wrong."""


@dataclass(frozen=True)
class Status:
    """What tells cheaply that a file is still the same."""

    n_bytes: int
    changed_ns: int | None  # since 1970; None where the place does not say


def status(path: str) -> Status:
    """Size and time of change of a file.

    Raises:
        OSError: there is no such file on this machine.
        SourceError: it is in another place, and not to be found there.
    """
    if not is_remote(path):
        found = Path(path).stat()
        return Status(found.st_size, found.st_mtime_ns)
    with reaching(path):
        filesystem, place = looked_up(path)
        info = filesystem.get_file_info(place)
    if not info.is_file:
        raise SourceError(f"{without_secrets(path)}: no such file; was it removed or renamed?")
    return status_of(path, info)


def status_of(url: str, info: fs.FileInfo) -> Status:
    """The status of a file in another place, from what its file system says.

    Raises:
        SourceError: its size is not known, or the place cannot be reached.
    """
    if info.size is None:
        raise SourceError(f"{without_secrets(url)}: the server does not say how large this is; download it first")
    if info.mtime_ns is not None:
        return Status(info.size, info.mtime_ns)
    filesystem, place = opened(url)
    try:
        with reaching(url):
            changed = filesystem.handler.fs.modified(place)  # what fsspec knows and Arrow does not ask for
    except SourceError as error:
        if isinstance(error.__cause__, NotImplementedError | AttributeError):
            return Status(info.size, None)
        raise
    return Status(info.size, round(changed.timestamp() * 1e6) * 1000)


def looked_up(url: str) -> tuple[fs.FileSystem, str]:
    """The file system and path of a URL, to be asked what is there now: fsspec's clients remember old answers."""
    filesystem, place = opened(url)
    client = getattr(getattr(filesystem, "handler", None), "fs", None)
    if client is not None:
        client.invalidate_cache()
    return filesystem, place


def open_bytes(path: str) -> IO[bytes] | RemoteFile:
    """The bytes of a file from its beginning."""
    return RemoteFile(path) if is_remote(path) else Path(path).open("rb", buffering=0)


def open_random(path: str, local: Callable[[str], pa.NativeFile]) -> pa.NativeFile:
    """A file for Arrow's readers, which go where they want in it: through ``local`` where it is on this machine."""
    return pa.PythonFile(RemoteFile(path), mode="r") if is_remote(path) else local(path)


def together(action: Callable[[T], R], items: Iterable[T], paths: Iterable[str]) -> Iterator[R]:
    """The results in order. Where a path is in another place, several at once: each waits for its server."""
    if not any(map(is_remote, paths)):
        yield from map(action, items)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(action, items)


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Whatever a client raises becomes a SourceError that names the URL and says what to do."""
    try:
        yield
    except (SourceError, CleanseError):
        raise
    except Exception as error:  # a client behind fsspec raises errors of its own kinds
        raise unreachable(url, error) from error


def unreachable(url: str, error: Exception) -> SourceError:
    """The message for an input in another place that cannot be read."""
    return SourceError(
        f"{without_secrets(url)}: cannot be read ({said(error, url)}); check the address, the credentials and the "
        "network, and run the same command again: it continues where it stopped"
    )


@dataclass
class _Window:
    """Bytes that were read together, and how many more to ask for when reading goes on behind them."""

    start: int
    data: bytes
    ahead: int = _AHEAD_LEAST

    def covers(self, at: int) -> bool:
        return self.start <= at <= self.start + len(self.data)


class RemoteFile:
    """A file behind a URL, read as one on a disk is, with few requests and little over-reading.

    A large read is one request for just these bytes. A small one brings what lies behind it, more each time that
    reading goes on there. At most ``_WINDOWS`` pieces of ``_AHEAD_MOST`` bytes are held.

    Raises (in whatever reads):
        SourceError: the place cannot be reached, also not later; or the file is no longer the one that was opened.
    """

    mode = "rb"

    def __init__(self, url: str) -> None:
        self.url = url
        self.closed = False
        self._file: pa.NativeFile | None = None
        self._size: int | None = None
        self._at = 0
        self._windows: list[_Window] = []  # the one used last in front

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes (all that are left, if negative); fewer only at the end."""
        left = max(0, self.size - self._at)
        size = left if size < 0 else min(size, left)
        if size == 0:
            return b""
        window = self._window()
        skip = self._at - window.start
        have = window.data[skip : skip + size]
        missing = size - len(have)
        if missing:
            behind = self._at + len(have)
            more = self._fetch(behind, max(missing, window.ahead))
            have += more[:missing]
            if missing <= window.ahead:
                window.start, window.data, window.ahead = behind, more, min(2 * window.ahead, _AHEAD_MOST)
            else:
                window.start, window.data = behind + missing, b""
        self._at += size
        return have

    def seek(self, to: int, whence: int = 0) -> int:
        """Goes on at this byte (counted from the start, from here, or from the end)."""
        self._at = to + (0, self._at, self.size if whence else 0)[whence]
        return self._at

    def tell(self) -> int:
        """The place of the next byte."""
        return self._at

    def close(self) -> None:
        """Gives the connection back."""
        self.closed = True
        self._windows.clear()
        self._drop()

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        if self._size is None:
            self._try(self._open)
        assert self._size is not None
        return self._size

    def _window(self) -> _Window:
        """The window that reading goes on in or right behind; else a new one, for which the oldest is given up."""
        window = next((window for window in self._windows if window.covers(self._at)), None)
        if window is None:
            window = _Window(self._at, b"")
        else:
            self._windows.remove(window)
        self._windows[:] = [window, *self._windows[: _WINDOWS - 1]]
        return window

    def _fetch(self, at: int, size: int) -> bytes:
        """Exactly these bytes, as far as the file goes."""
        stop = min(at + size, self.size)
        pieces = []
        while at < stop:
            piece = self._try(lambda at=at: self._read_at(at, stop - at))  # type: ignore[misc]
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    def _read_at(self, at: int, size: int) -> bytes:
        piece: bytes = self._open().read_at(size, at)
        if not piece:
            raise OSError(f"the connection ended at byte {at:,} of {self._size:,}")
        return piece

    def _open(self) -> pa.NativeFile:
        if self._file is None:
            filesystem, place = opened(self.url)
            self._file = filesystem.open_input_file(place)
            size = self._file.size()
            if self._size not in (None, size):
                name = without_secrets(self.url)
                raise SourceError(f"{name}: changed while it was read, from {self._size:,} bytes to {size:,}")
            self._size = size
        return self._file

    def _try(self, action: Callable[[], Any]) -> Any:
        """Does what a broken connection may interrupt, again if need be, each time on a new connection."""
        for pause in (*_PAUSES, None):
            try:
                return action()
            except (SourceError, CleanseError):
                raise
            except Exception as error:  # a client behind fsspec raises errors of its own kinds
                self._drop()
                if pause is None or isinstance(error, _NO_USE):
                    raise unreachable(self.url, error) from error
            time.sleep(pause)
        raise AssertionError  # the last attempt returns or raises

    def _drop(self) -> None:
        if self._file is not None:
            with suppress(Exception):  # of a connection that is broken already
                self._file.close()
            self._file = None
