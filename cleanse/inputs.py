"""Which bytes a run reads: a cheap fingerprint before, and the sha256 that the summary records."""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cleanse.atomic import write_json
from cleanse.engines.job import Job, Report
from cleanse.sources import Source
from cleanse.sources.places import open_bytes
from cleanse.state import unit_path
from cleanse.storage.filesystem import without_secrets

STAGE = "sha256"
_CHUNK = 4 << 20


@dataclass(frozen=True)
class HashTask:
    """One file to hash."""

    source: Source
    folder: Path  # OUT/.cleanse


def hashing(task: HashTask) -> Job:
    """The job of hashing one source."""
    path = unit_path(task.folder, STAGE, task.source.index, ".json")
    return Job(hash_source, task, f"reading {task.source.name}", writes=(path,))


def hash_source(task: HashTask, _report: Report) -> None:
    """Commits the sha256 of one source's bytes as they lie there (compressed ones as they are)."""
    digest = _sha256(task.source.path)
    write_json(unit_path(task.folder, STAGE, task.source.index, ".json"), digest)


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with closing(open_bytes(path)) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def identity(source: Source, spool: Path) -> dict[str, Any]:
    """What tells that a source is still the one the run began with: size and time of change, without reading it.

    A file in the run's own spool was written by the run, perhaps again: there the content must tell, and the place is
    that within the run's folder, which need not be called on the next machine what it is called here. A URL that may
    hold a secret is not written down.
    """
    path = without_secrets(source.path)
    spooled = Path(path).is_relative_to(spool)
    if spooled:
        path = Path(path).relative_to(spool.parent).as_posix()
    return {
        "name": source.name,
        "path": path if spooled or path == source.path else None,
        "kind": source.kind,
        "bytes": source.n_bytes,
        "changed_ns": None if spooled else source.changed_ns,
        "sha256": _sha256(source.path) if spooled else None,
    }
