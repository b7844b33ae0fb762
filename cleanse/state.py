"""The unfinished run in OUT/.cleanse: who may write there, what is done, and whether it is the same command."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cleanse.atomic import TEMPORARY, read_json, sweep, write_json
from cleanse.config import differences
from cleanse.errors import CleanseError, NoRecordsError, UsageError
from cleanse.reviewing.journal import finish, is_pending
from cleanse.sources import SourceError
from cleanse.sources.places import status
from cleanse.sources.spool import stdin_sha256
from cleanse.storage.files import Files, LocalFiles, RemoteFiles
from cleanse.storage.filesystem import without_secrets
from cleanse.storage.jobs import sweep as sweep_jobs
from cleanse.storage.remote import Remote

if TYPE_CHECKING:
    from typing_extensions import Self

FOLDER = ".cleanse"


class RunState:
    """The exclusive right to write to one output folder, and the record of what is already there.

    Everything a stage commits is one file per unit, ``.cleanse/<stage>/<unit>.<suffix>``; a file that exists is
    complete. The same command finds those files and goes on after them.
    """

    def __init__(self, out: Path, identity: Mapping[str, Any], url: str | None = None) -> None:
        """Opens or creates the output folder.

        Args:
            out: the folder; where the output goes to a URL, this machine's copy of what is needed of it.
            identity: what decides the output.
            url: another place that the output goes to.

        Raises:
            UsageError: the folder holds something else, or the run of another command.
            CleanseError: the folder cannot be written to, or another scan is writing to it.
        """
        self.out = out
        self.url = url
        self.place = str(out) if url is None else without_secrets(url)
        self.folder = out / FOLDER
        if url is None:
            _refuse_foreign(out)
        try:
            if url is not None:
                _make_private(out)
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock(self.folder / "lock", self.place)
        except OSError as error:
            raise CleanseError(
                f"cannot write to the output folder {out}: {error.strerror}; choose another with -o"
            ) from error
        try:
            self.files: Files = LocalFiles() if url is None else self._entered(url)
            sweep(self.out)
            finish(self.out, self.folder)  # a release that was interrupted after it was decided
            self._run = self._load(dict(identity))
        except BaseException:
            self.close()
            raise

    def _entered(self, url: str) -> RemoteFiles:
        """The files in another place, with an empty local folder but for what tells which run is there."""
        for path in self.out.iterdir():  # copies that an earlier process left: what is there may have gone on since
            if path != self.folder:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in self.folder.iterdir():
            if path.name != "lock":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        sweep_jobs(self.out)
        files = RemoteFiles(Remote(url, self.out))
        others = [path for path in files.below(self.out) if not self._half_begun(path)]
        if others and not files.has(self.folder / "run.json"):
            raise _foreign(without_secrets(url))
        files.sweep()
        wanted = [path for path in (self.folder / "run.json", self.out / "summary.json") if files.has(path)]
        files.fetch(*wanted, *files.below(self.folder / "spool"))
        return files

    def _half_begun(self, path: Path) -> bool:
        """Whether a process that was killed at its very start can have left this file."""
        return path.parent == self.folder and _before_run_file(path.name)

    def _load(self, identity: dict[str, Any]) -> dict[str, Any]:
        path = self.folder / "run.json"
        if not path.exists():
            self._run = {"identity": identity, "inputs": None, "finished": False}
            self.remember("run.json", self._run)
            return self._run
        run = read_json(path)
        changed = differences(run["identity"], identity)
        if changed:
            what = "the result" if run["finished"] else "an unfinished run"
            raise UsageError(
                f"{self.place} holds {what} of a different command: {'; '.join(changed)}. "
                f"Repeat that command, choose another folder with -o, or remove {self.place}"
            )
        return dict(run)

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Commits ``value`` as JSON under this name in the run's own folder."""
        write_json(self.folder / name, value)
        self.files.send(self.folder / name)

    def known(self, name: str) -> dict[str, Any] | None:
        """What was committed under this name; None where nothing was."""
        path = self.folder / name
        if not self.files.has(path):
            return None
        self.files.fetch(path)
        return dict(read_json(path))

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides the output: the request, the rules, the version."""
        return dict(self._run["identity"])

    @property
    def finished(self) -> bool:
        """Whether this very command has already run to its end here."""
        return bool(self._run["finished"])

    @property
    def resumed(self) -> bool:
        """Whether an earlier process had already got as far as reading the inputs."""
        return self._run["inputs"] is not None

    @property
    def spool(self) -> Path:
        """A folder for inputs that must be kept to be read twice (stdin, transcoded files)."""
        path = self.folder / "spool"
        path.mkdir(exist_ok=True)
        return path

    def path(self, stage: str, unit: int, suffix: str) -> Path:
        """Where a stage commits its file for one unit of work."""
        return unit_path(self.folder, stage, unit, suffix)

    def pin_inputs(self, inputs: list[dict[str, Any]]) -> None:
        """Remembers which inputs this run reads; on resuming, checks that they are still the same.

        Raises CleanseError naming the input that changed: half of the output would come from other data.
        """
        pinned = self._run["inputs"]
        if pinned is None:
            self._run["inputs"] = inputs
            self.remember("run.json", self._run)
            return
        if pinned == inputs:
            return
        raise self._changed({i["name"] for i in [*pinned, *inputs] if i not in pinned or i not in inputs})

    def check_pinned(self) -> None:
        """Raises CleanseError when an input of a finished run is no longer the file that was read."""
        changed = set()
        for pinned in self._run["inputs"]:
            if pinned["path"] is None:
                continue  # a URL whose parameters were not written down
            if pinned["sha256"] is None:
                try:
                    now = status(pinned["path"])
                except (OSError, SourceError, CleanseError):
                    continue  # a result stays valid when its input was moved away
                if (now.n_bytes, now.changed_ns) != (pinned["bytes"], pinned["changed_ns"]):
                    changed.add(pinned["name"])
            elif pinned["path"] == "spool/stdin" and stdin_sha256() not in (None, pinned["sha256"]):
                changed.add("standard input")
        if changed:
            raise self._changed(changed)

    def _changed(self, names: set[str]) -> CleanseError:
        return CleanseError(
            f"the input changed since this run began: {', '.join(sorted(names)[:5])}. "
            f"Restore it, choose another folder with -o, or remove {self.place} to start over"
        )

    def finish(self) -> None:
        """Marks the run as done and removes what was only needed on the way."""
        self._run["finished"] = True
        self.remember("run.json", self._run)
        self.tidy()

    def tidy(self) -> None:
        """Removes intermediate files; the lock and run.json stay."""
        self.files.remove_folders(self.folder)

    def discard(self) -> None:
        """Leaves no trace: for a run that ended before there was anything worth going on from."""
        self.files.remove(self.folder)
        self.files.vacate(self.out)

    def close(self) -> None:
        """Gives up the lock, and the copies of an output that lies in another place."""
        if self.url is not None:
            shutil.rmtree(self.out, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        nothing_done = not self.files.has_below(self.folder / "inspect", ".json")
        if error is not None and not self.finished and (nothing_done or isinstance(error, NoRecordsError)):
            with contextlib.suppress(CleanseError):  # the first error is the one to tell
                self.discard()
        elif error is not None:
            sweep(self.out)
        self.close()


def unit_path(folder: Path, stage: str, unit: int, suffix: str) -> Path:
    """Where a stage commits its file for one unit of work, seen from a worker process."""
    return folder / stage / f"{unit:06d}{suffix}"


def carry_on(out: Path) -> None:
    """Carries a release to its end that a process began and did not live to finish.

    Raises CleanseError where another command is at work in ``out``.
    """
    folder = out / FOLDER
    if not is_pending(folder):
        return
    descriptor = lock(folder / "lock", str(out))
    try:
        finish(out, folder)
    finally:
        os.close(descriptor)


def _make_private(folder: Path) -> None:
    """Makes a folder for copies that nobody else can have laid out, or can read.

    Raises PermissionError where it belongs to another user.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "it belongs to someone else; set TMPDIR to a folder of yours", str(folder))


def _refuse_foreign(out: Path) -> None:
    """Raises UsageError unless ``out`` is free or ours."""
    try:
        names = {entry.name for entry in out.iterdir()}
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise UsageError(f"the output {out} is a file, or lies below one: name a new folder with -o") from None
    except PermissionError as error:
        raise CleanseError(f"cannot read the output folder {out}: {error.strerror}") from error
    folder = out / FOLDER
    if not names or (folder / "run.json").exists():
        return
    if names == {FOLDER} and all(_before_run_file(entry.name) for entry in folder.iterdir()):
        return
    raise _foreign(str(out))


def _foreign(place: str) -> UsageError:
    return UsageError(
        f"the output folder {place} is not empty and was not written by cleanse: name a new folder with -o"
    )


def _before_run_file(name: str) -> bool:
    """Whether a process that was killed at its very start can have left a file of this name in our folder."""
    return name == "lock" or (name.startswith("run.json.") and name.endswith(TEMPORARY))


def lock(path: Path, out: str) -> int:
    """A file descriptor that holds the lock until it is closed or the process ends, in whatever way.

    Raises CleanseError where another process has it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise CleanseError(f"another command (process {holder}) is writing to {out}: wait for it to end") from None
    except OSError as error:
        if error.errno not in {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}:
            os.close(descriptor)
            raise  # some network disks have no locks: better unguarded than unusable
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
