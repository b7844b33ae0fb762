"""Changes to an output folder that happen all or not at all, whenever the process dies."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cleanse.atomic import read_json, rename, write_json
from cleanse.errors import CleanseError
from cleanse.reviewing.allow import AllowList

FOLDER = "release"  # in OUT/.cleanse
_COMMIT = "commit.json"
_ALLOW = "allow.json"


class Journal:
    """New versions of files and folders are staged; once committed, they take the places of the old ones.

    A process that dies before the commit has changed nothing. After it, whoever opens the output folder next carries
    the change to its end (``finish``): every step can be repeated.
    """

    def __init__(self, state_folder: Path) -> None:
        self.folder = state_folder / FOLDER
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "new").mkdir(parents=True)

    def staged(self, name: str) -> Path:
        """Where the new version of OUT/name is to be written."""
        path = self.folder / "new" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def commit(self, names: Sequence[str], outdated: Sequence[str], allow: Path, decided: AllowList) -> None:
        """Decides for the change.

        Args:
            names: whose staged versions take the places of OUT/name.
            outdated: files of OUT that are to go.
            allow: the allow list to add to.
            decided: what to add to it.
        """
        decided.write(self.folder / _ALLOW)
        decision = {"names": list(names), "outdated": list(outdated), "allow": str(allow.absolute())}
        write_json(self.folder / _COMMIT, decision)


def finish(out: Path, state_folder: Path) -> None:
    """Carries a committed change to its end, and removes one that was not committed. Call with the lock held."""
    folder = state_folder / FOLDER
    if not folder.exists():
        return
    if (folder / _COMMIT).exists():
        decision = read_json(folder / _COMMIT)
        for name in decision["names"]:
            _exchange(out / name, folder / "new" / name, folder / "old" / name)
        for name in decision["outdated"]:
            (out / name).unlink(missing_ok=True)
        allow = Path(decision["allow"])
        known = AllowList.read([allow]) if allow.exists() else AllowList()
        known.with_more(AllowList.read([folder / _ALLOW]).by_content.values()).write(allow)
        (folder / _COMMIT).unlink()
    shutil.rmtree(folder, ignore_errors=True)


def is_pending(state_folder: Path) -> bool:
    """Whether a committed change waits to be carried to its end."""
    return (state_folder / FOLDER / _COMMIT).exists()


def _exchange(place: Path, new: Path, old: Path) -> None:
    """Puts ``new`` in its place. Done already where ``new`` is gone."""
    if not new.exists():
        return
    if place.exists():
        old.parent.mkdir(parents=True, exist_ok=True)
        if old.exists():  # the old version moved away before, and died before the new one came: place is not it
            raise CleanseError(f"{place} changed while records were released: restore it from {old}, or scan again")
        rename(place, old)
    place.parent.mkdir(parents=True, exist_ok=True)
    rename(new, place)
