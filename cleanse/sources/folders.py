"""Folders, on this machine or behind a URL, as far as finding inputs in them needs it."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyarrow import fs

from cleanse.sources.errors import SourceError
from cleanse.sources.places import RemoteFile, Status, looked_up, reaching, status_of
from cleanse.storage.filesystem import joined, without_secrets


@dataclass(frozen=True)
class Found:
    """A file to read, before its kind is known. ``hub`` and ``stdin`` have no file yet."""

    name: str
    path: str = ""
    origin: str = "file"  # file, stdin or hub
    status: Status | None = None  # where a listing told it


class Folder(Protocol):
    """A folder. Members are named by their path within it, with slashes."""

    name: str

    def files(self) -> list[Found]:
        """All files below it, hidden ones left out, sorted."""
        ...

    def member(self, name: str) -> Found | None:
        """A file below it, if it is there."""
        ...

    def read(self, name: str) -> bytes | None:
        """The content of a small file below it, if it is there."""
        ...

    def below(self, name: str) -> Folder:
        """A folder within it."""
        ...


class LocalFolder:
    """A folder on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def files(self) -> list[Found]:
        """All files below it, hidden ones left out, sorted."""
        paths = sorted(
            str(Path(root, name))
            for root, _, names in os.walk(self.path)
            for name in names
            if not is_hidden(Path(root, name).relative_to(self.path).as_posix())
        )
        return [Found(path, path) for path in paths]

    def member(self, name: str) -> Found | None:
        """A file below it, if it is there. Raises SourceError for a name, or a link, that leads out of it."""
        path = self._inside(name)
        return Found(str(path), str(path)) if path.is_file() else None

    def read(self, name: str) -> bytes | None:
        """The content of a small file below it, if it is there."""
        path = self.path / name
        try:
            return path.read_bytes() if path.is_file() else None
        except OSError as error:
            raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from error

    def below(self, name: str) -> LocalFolder:
        """A folder within it. Raises SourceError for a name, or a link, that leads out of it."""
        return LocalFolder(self._inside(name))

    def _inside(self, name: str) -> Path:
        path = self.path / name
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise _outside(self.name, name)
        return path


class RemoteFolder:
    """A folder behind a URL, listed once."""

    def __init__(self, url: str) -> None:
        """Raises SourceError where it cannot be listed."""
        self.url = url
        self.name = without_secrets(url)
        with reaching(url):
            filesystem, place = looked_up(url)
            listed = filesystem.get_file_info(fs.FileSelector(place, recursive=True))
        self._there = {within(place, info.path): info for info in listed if info.is_file}

    def files(self) -> list[Found]:
        """All files below it, hidden ones left out, sorted."""
        return [self._found(name) for name in sorted(self._there) if not is_hidden(name)]

    def member(self, name: str) -> Found | None:
        """A file below it, if it is there. Raises SourceError for a name that leads out of it."""
        inside = self._inside(name)
        return self._found(inside) if inside in self._there else None

    def read(self, name: str) -> bytes | None:
        """The content of a small file below it, if it is there."""
        if name not in self._there:
            return None
        file = RemoteFile(joined(self.url, name))
        try:
            return file.read()
        finally:
            file.close()

    def below(self, name: str) -> RemoteFolder:
        """A folder within it. Raises SourceError for a name that leads out of it."""
        return RemoteFolder(joined(self.url, self._inside(name)))

    def _inside(self, name: str) -> str:
        inside = posixpath.normpath(name)
        if inside.startswith(("/", "..")):
            raise _outside(self.name, name)
        return inside

    def _found(self, name: str) -> Found:
        return found_remote(joined(self.url, name), self._there[name])


def found_remote(url: str, info: fs.FileInfo) -> Found:
    """A file behind a URL, as a listing tells of it. Raises SourceError where its size is not known."""
    return Found(without_secrets(url), url, status=status_of(url, info))


def is_hidden(name: str) -> bool:
    """Whether a member of a folder, or a folder that it lies in, is marked as not meant to be read."""
    return any(part.startswith((".", "_")) for part in name.split("/"))


def _outside(folder: str, name: str) -> SourceError:
    return SourceError(f"{folder}: lists {name!r}, which lies outside of the folder")


def within(place: str, path: str) -> str:
    """A path below a folder of a file system, seen from that folder."""
    return path.strip("/")[len(place.strip("/")) :].strip("/")
