"""The files of a run as its main process sees them: on a disk of this machine, or in another place."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Protocol

from cleanse.atomic import TEMPORARY, rename
from cleanse.engines.job import Engine
from cleanse.storage.jobs import StoredEngine
from cleanse.storage.remote import AT_ONCE, Remote


class Files(Protocol):
    """What a run's main process does with committed files. Paths are those within the local output folder."""

    def has(self, path: Path) -> bool:
        """Whether the file is committed."""
        ...

    def has_below(self, folder: Path, suffix: str = "") -> bool:
        """Whether any file below a folder, with this ending, is committed."""
        ...

    def fetch(self, *paths: Path) -> None:
        """Sees to it that these files can be read from this machine's disk."""
        ...

    def fetch_folder(self, folder: Path, most_bytes: int) -> bool:
        """Sees to it that a folder can be read from this machine's disk; says no where it is larger than that."""
        ...

    def each(self, paths: Iterable[Path]) -> Iterator[Path]:
        """The files one after the other, each readable until the next is asked for."""
        ...

    def send(self, *paths: Path) -> None:
        """Says that these files, written here, are committed."""
        ...

    def move(self, source: Path, target: Path) -> None:
        """Renames a committed file; a move that was already made is accepted."""
        ...

    def workplace(self, target: Path, work: Path) -> Path:
        """The folder to build a folder in that is to appear under its name as a whole: ``work``, or itself."""
        ...

    def reveal(self, folder: Path, target: Path) -> None:
        """Gives a folder that was built in its workplace its name."""
        ...

    def remove(self, folder: Path) -> None:
        """Removes what is committed below a folder, and the folder."""
        ...

    def vacate(self, out: Path) -> None:
        """Removes the output folder where nothing is in it."""
        ...

    def remove_folders(self, folder: Path) -> None:
        """Removes the folders in a folder; the files that lie in it directly stay."""
        ...

    def engine(self, engine: Engine) -> Engine:
        """The engine for jobs that read and commit such files."""
        ...


class LocalFiles:
    """The output folder lies on a disk that this process and all workers share."""

    def has(self, path: Path) -> bool:
        """Whether it exists."""
        return path.exists()

    def has_below(self, folder: Path, suffix: str = "") -> bool:
        """Whether any such file exists."""
        return any(path.is_file() for path in folder.rglob("*" + suffix))

    def fetch(self, *paths: Path) -> None:
        """They are here."""

    def fetch_folder(self, folder: Path, most_bytes: int) -> bool:  # noqa: ARG002 - its size is no matter here
        """It is here."""
        return True

    def each(self, paths: Iterable[Path]) -> Iterator[Path]:
        """The files, where they are."""
        yield from paths

    def send(self, *paths: Path) -> None:
        """They are there."""

    def move(self, source: Path, target: Path) -> None:
        """Renames, durably."""
        rename(source, target)

    def workplace(self, target: Path, work: Path) -> Path:  # noqa: ARG002 - a folder is built beside its place
        """Another folder: this disk can rename a folder as a whole."""
        return work

    def reveal(self, folder: Path, target: Path) -> None:
        """Renames, durably."""
        rename(folder, target)

    def remove(self, folder: Path) -> None:
        """Removes the folder."""
        shutil.rmtree(folder, ignore_errors=True)

    def vacate(self, out: Path) -> None:
        """Removes it."""
        with suppress(OSError):  # not empty: it was there before
            out.rmdir()

    def remove_folders(self, folder: Path) -> None:
        """Removes the folders."""
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)

    def engine(self, engine: Engine) -> Engine:
        """The engine itself."""
        return engine


class RemoteFiles:
    """The output folder lies in another place; the local one holds copies of what was needed of it."""

    def __init__(self, remote: Remote) -> None:
        """Looks once at what is there. Raises CleanseError where the place cannot be reached."""
        self._remote = remote
        self._there = set(remote.listed())

    def sweep(self) -> None:
        """Removes what a killed process left, where a file can be there in part. The folder must be known as ours."""
        for path in [path for path in self._there if path.name.endswith(TEMPORARY)]:
            self._remote.remove(path)
            self._there.discard(path)

    def below(self, folder: Path) -> list[Path]:
        """The files below a folder that were there in the beginning, or were committed since."""
        return sorted(path for path in self._there if path.is_relative_to(folder))

    def has(self, path: Path) -> bool:
        """Whether it was there in the beginning, or was committed since."""
        return path in self._there

    def has_below(self, folder: Path, suffix: str = "") -> bool:
        """Whether any such file was there in the beginning, or was committed since."""
        return any(path.is_relative_to(folder) and path.name.endswith(suffix) for path in self._there)

    def fetch(self, *paths: Path) -> None:
        """Copies what is not here yet, several at once."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(self._remote.pull, paths):
                pass

    def fetch_folder(self, folder: Path, most_bytes: int) -> bool:
        """Copies the files below the folder, unless they are too large together."""
        sizes = {path: size for path, size in self._remote.listed().items() if path.is_relative_to(folder)}
        if sum(sizes.values()) > most_bytes:
            return False
        self.fetch(*sizes)
        return True

    def each(self, paths: Iterable[Path]) -> Iterator[Path]:
        """Copies a few at a time, and removes each copy again."""
        waiting = iter(paths)
        while some := tuple(islice(waiting, AT_ONCE)):
            self.fetch(*some)
            for path in some:
                yield path
                path.unlink(missing_ok=True)

    def send(self, *paths: Path) -> None:
        """Copies them to the other place, in this order."""
        for path in paths:
            self._remote.push(path)
            self._there.add(path)

    def move(self, source: Path, target: Path) -> None:
        """Renames a file there, without its bytes coming here where the place can do that."""
        self._remote.move(source, target)
        self._there.discard(source)
        self._there.add(target)

    def workplace(self, target: Path, work: Path) -> Path:  # noqa: ARG002 - a folder is built in its place
        """The folder itself: an object store has no folders to rename."""
        return target

    def reveal(self, folder: Path, target: Path) -> None:
        """It is there, since the last of its files is."""

    def remove(self, folder: Path) -> None:
        """Removes the folder there, and the copies here."""
        self._remote.remove(folder)
        self._there.difference_update(self.below(folder))
        shutil.rmtree(folder, ignore_errors=True)

    def vacate(self, out: Path) -> None:  # noqa: ARG002 - it is the one this was made for
        """Removes it there: an object store keeps a mark of the folder when its last file is gone."""
        self._remote.vacate()

    def remove_folders(self, folder: Path) -> None:
        """Removes the folders there, and the copies here."""
        start = len(folder.parts)
        for name in sorted({path.parts[start] for path in self.below(folder) if path.parent != folder}):
            self.remove(folder / name)

    def engine(self, engine: Engine) -> Engine:
        """The engine, with jobs that fetch what they read and send what they commit."""
        return StoredEngine(engine, self._remote, self._there)
