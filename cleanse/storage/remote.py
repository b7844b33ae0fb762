"""An output folder in another place, and this machine's copy of what is needed of it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from cleanse.atomic import TEMPORARY, committed
from cleanse.errors import CleanseError, UsageError
from cleanse.storage.filesystem import opened, puts_whole, said, without_secrets

AT_ONCE = 16
"""Requests to an object store, each of which waits some 50 ms."""

_S3_COPIES = 5 << 30
"""Bytes of the largest object that S3 copies in one request, which is how Arrow renames
(https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html)."""


class Remote:
    """Files below a URL, by the paths of their copies below a local folder.

    A file that has its name in the other place is complete there. Every method takes and gives local paths.
    """

    def __init__(self, url: str, local: Path) -> None:
        """``local`` need not exist. Raises UsageError where no client can open the URL."""
        self.url = url
        self.local = local
        self._filesystem, self._root = opened(url)

    def place(self, path: Path) -> str:
        """Where the file lies, within its file system."""
        return f"{self._root}/{path.relative_to(self.local).as_posix()}".removesuffix("/.")

    def listed(self) -> dict[Path, int]:
        """All files and their sizes in bytes; none where there is no such folder.

        Raises CleanseError where the place cannot be reached.
        """
        everything = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        try:
            found = self._filesystem.get_file_info(everything)
        except Exception as error:  # a client behind fsspec raises errors of its own kinds
            raise self._unreachable("listed", error) from error
        start = len(self._root) + 1
        return {self.local / info.path[start:]: info.size for info in found if info.type is fs.FileType.File}

    def pull(self, path: Path) -> Path:
        """Copies a file to this machine, unless it is here."""
        if path.exists():
            return path
        try:
            with (
                committed(path) as temporary,
                self._filesystem.open_input_stream(self.place(path)) as source,
                temporary.open("wb") as target,
            ):
                shutil.copyfileobj(source, target, 8 << 20)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise self._unreachable("read", error, path) from error
        return path

    def push(self, path: Path) -> None:
        """Copies a file of this machine to the other place, where it appears whole or not at all."""
        target = self.place(path)
        whole = puts_whole(self._filesystem)
        upload = target if whole else target + TEMPORARY
        try:
            if not whole:
                self._filesystem.create_dir(target.rpartition("/")[0], recursive=True)
            # The file is mapped: a local read that fails kills the process and thereby the upload, and nothing
            # else can end the stream before its last byte.
            with pa.memory_map(str(path)) as mapped, self._filesystem.open_output_stream(upload) as stream:
                stream.write(mapped.read_buffer())
            if not whole:
                self._filesystem.move(upload, target)
        except Exception as error:
            raise self._unreachable("written", error, path) from error

    def move(self, source: Path, target: Path) -> None:
        """Renames a file there. A move that an earlier, killed process already made is accepted."""
        there, here = self._filesystem.get_file_info([self.place(source), self.place(target)])
        if there.type is fs.FileType.NotFound and here.type is fs.FileType.File:
            return
        if self._filesystem.type_name == "s3" and there.type is fs.FileType.File and there.size > _S3_COPIES:
            self._carry(source, target)
            return
        try:
            if not puts_whole(self._filesystem):
                self._filesystem.create_dir(self.place(target.parent), recursive=True)
            self._filesystem.move(self.place(source), self.place(target))
        except Exception as error:
            raise self._unreachable("written", error, target) from error

    def _carry(self, source: Path, target: Path) -> None:
        """Renames by way of this machine's disk."""
        target.parent.mkdir(parents=True, exist_ok=True)
        self.pull(source).replace(target)
        try:
            self.push(target)
        finally:
            target.unlink()
        self.remove(source)

    def remove(self, path: Path) -> None:
        """Removes a file there, or a folder with all that is in it; what is gone already is no matter."""
        where = self.place(path)
        try:
            kind = self._filesystem.get_file_info(where).type
            if kind is fs.FileType.Directory:
                self._filesystem.delete_dir(where)
            elif kind is fs.FileType.File:
                self._filesystem.delete_file(where)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._unreachable("removed", error, path) from error

    def vacate(self) -> None:
        """Removes the folder that the URL names where nothing is in it. A bucket stays: removing it is not for us."""
        if "/" in self._root.strip("/") and not self.listed():
            self.remove(self.local)

    def _unreachable(self, what: str, error: Exception, path: Path | None = None) -> CleanseError:
        name = without_secrets(self.url) + (f" ({path.relative_to(self.local)})" if path is not None else "")
        if isinstance(error, NotImplementedError):
            return UsageError(f"{name} cannot be {what}: its protocol is one to read from; name another place with -o")
        return CleanseError(
            f"{name} cannot be {what}: {said(error, self.url)}. Check the address and the credentials and run the same "
            "command again: it continues where it stopped"
        )


def kept_copy(url: str) -> Path:
    """A copy of the folder at a URL that stays until this process ends.

    Made with the client that wrote it: ``datasets`` would need another package, and knows no parameters of URLs.
    Raises CleanseError where the place cannot be reached.
    """
    folder = Path(tempfile.mkdtemp(prefix="cleanse-copy-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    remote = Remote(url, folder)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(remote.pull, remote.listed()):
            pass
    return folder
