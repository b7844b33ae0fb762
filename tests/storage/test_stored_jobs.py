"""Jobs on copies: what they read is fetched, what they commit is sent in order, and nothing stays behind."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cleanse.atomic import committed
from cleanse.engines.job import Job, Report
from cleanse.engines.local import LocalEngine
from cleanse.errors import CleanseError
from cleanse.storage.jobs import SCRATCH, StoredEngine, sweep
from cleanse.storage.remote import Remote


@dataclass(frozen=True)
class Task:
    names: tuple[str, ...]
    folder: Path
    fails: bool = False


def shout(task: Task, report: Report) -> int:
    """Writes what it reads in capitals, and last a file that says so."""
    for name in task.names:
        with committed(task.folder / "loud" / name) as temporary:
            temporary.write_text((task.folder / "said" / name).read_text().upper())
        report(1, 0, 0)
    if task.fails:
        raise CleanseError("it cannot be said")
    with committed(task.folder / "loud" / "done") as temporary:
        temporary.write_text("done")
    return len(task.names)


def job(task: Task) -> Job:
    loud = [task.folder / "loud" / name for name in (*task.names, "done")]
    return Job(shout, task, "shouting", reads=tuple(task.folder / "said" / n for n in task.names), writes=tuple(loud))


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    there = Remote(f"memory://{uuid.uuid4().hex}/out", tmp_path / "here")
    for name in "abc":
        path = tmp_path / "here" / ".cleanse" / "said" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name * 3)
        there.push(path)
        path.unlink()
    return there


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir()), "a worker keeps nothing on its disk"


def test_files_come_and_go(remote: Remote, scratch: Path) -> None:
    folder = remote.local / ".cleanse"
    done: set[Path] = set()
    reported = []
    with LocalEngine(1) as local:
        engine = StoredEngine(local, remote, done)
        jobs = [job(Task(("a", "b"), folder)), job(Task(("c",), folder))]
        assert list(engine.run(jobs, lambda *sums: reported.append(sums))) == [2, 1]
    assert done == {folder / "loud" / name for name in ("a", "b", "c", "done")}
    assert set(remote.listed()) >= done
    assert remote.pull(folder / "loud" / "b").read_text() == "BBB"
    assert sum(n for n, _, _ in reported) == 3


def test_what_a_killed_worker_left_is_swept(remote: Remote, scratch: Path) -> None:
    left = scratch / f"{remote.local.name}{SCRATCH}0123-77" / "features"
    left.mkdir(parents=True)
    other = scratch / f"another{SCRATCH}0123-77"
    other.mkdir()
    sweep(remote.local)
    assert list(scratch.iterdir()) == [other]
    other.rmdir()


def test_a_job_that_fails_sends_nothing(remote: Remote, scratch: Path) -> None:
    before = set(remote.listed())
    with LocalEngine(1) as local, pytest.raises(CleanseError, match="shouting: it cannot be said"):
        list(StoredEngine(local, remote, set()).run([job(Task(("a",), remote.local / ".cleanse", fails=True))], print))
    assert set(remote.listed()) == before


def test_what_says_that_all_is_there_comes_last(remote: Remote, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    push = Remote.push

    def breaks_at_b(self: Remote, path: Path) -> None:
        sent.append(path.name)
        if path.name == "b":
            raise CleanseError("the line is down")
        push(self, path)

    monkeypatch.setattr(Remote, "push", breaks_at_b)
    with LocalEngine(1) as local, pytest.raises(CleanseError, match="the line is down"):
        list(StoredEngine(local, remote, set()).run([job(Task(("a", "b", "c"), remote.local / ".cleanse"))], print))
    assert sent == ["a", "b"]
    assert remote.local / ".cleanse" / "loud" / "done" not in remote.listed()
