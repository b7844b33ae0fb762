"""The allow list: contents that a person released, and which rules had spoken against them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from cleanse.atomic import write_json
from cleanse.errors import UsageError
from cleanse.measures import TextBatch

FORMAT = "cleanse-allow/1"


@dataclass(frozen=True)
class Allowed:
    """One decision. It covers the rules that the reviewer saw: a record that another rule holds is held again."""

    sha256: str  # of the content, see ``content_digests``
    rules: tuple[str, ...]  # reasons that stood beside the record, sorted
    id: str = ""  # where it was met: "<source>:<row>"
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"sha256": self.sha256, "rules": list(self.rules), "id": self.id, "note": self.note}


@dataclass(frozen=True)
class AllowList:
    """Decisions by content. Empty by default."""

    by_content: Mapping[str, Allowed] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __len__(self) -> int:
        return len(self.by_content)

    def covers(self, sha256: str, reasons: Sequence[str]) -> Allowed | None:
        """The decision that releases a record of this content with these reasons, or None."""
        allowed = self.by_content.get(sha256)
        return allowed if allowed is not None and set(reasons) <= set(allowed.rules) else None

    def with_more(self, decisions: Iterable[Allowed]) -> AllowList:
        """Both lists as one; of two decisions about one content the later keeps id and note, and both keep rules."""
        known = dict(self.by_content)
        for new in decisions:
            old = known.get(new.sha256)
            rules = tuple(sorted({*new.rules, *(old.rules if old else ())}))
            known[new.sha256] = Allowed(new.sha256, rules, new.id, new.note or (old.note if old else ""))
        return AllowList(known)

    @property
    def digest(self) -> str:
        """sha256 (hex) of what can change a verdict: contents and rules, in no order."""
        facts = sorted((allowed.sha256, list(allowed.rules)) for allowed in self.by_content.values())
        return hashlib.sha256(orjson.dumps(facts)).hexdigest()

    def write(self, path: Path) -> None:
        """Writes the list, sorted by content: whole or not at all."""
        records = [self.by_content[sha256].to_json() for sha256 in sorted(self.by_content)]
        write_json(path, {"format": FORMAT, "records": records})

    @classmethod
    def read(cls, paths: Iterable[Path]) -> AllowList:
        """The lists of several files as one. Raises UsageError naming the file that is none."""
        made = cls()
        for path in paths:
            made = made.with_more(_read(path))
        return made


def _read(path: Path) -> list[Allowed]:
    try:
        content = orjson.loads(path.read_bytes())
        found = [
            Allowed(str(r["sha256"]), tuple(sorted(map(str, r["rules"]))), str(r.get("id", "")), str(r.get("note", "")))
            for r in content["records"]
        ]
        named = content["format"]
    except OSError as error:
        raise UsageError(
            f"the allow list {path} cannot be read ({error.strerror}): expected a file that cleanse release wrote"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f'{path} is no allow list ({error}): expected {{"format": "{FORMAT}", "records": [...]}}, '
            "as cleanse release writes it"
        ) from error
    if named != FORMAT:
        raise UsageError(
            f"the allow list {path} has format {named!r}: expected {FORMAT!r}, as cleanse release writes it"
        )
    return found


def content_digests(texts: TextBatch) -> list[str]:
    """sha256 (hex) of each record's judged text, (records,): roles, whether trained, which are null, and the bytes.

    What is not judged (an id, a score) does not count: the same text in a later export is the same content.
    """
    bounds = np.searchsorted(texts.record, np.arange(texts.n_records + 1)).tolist()
    marks = np.stack([texts.role, texts.supervised, texts.is_null]).astype(np.uint8)
    digests = []
    for first, after in pairwise(bounds):
        offsets = texts.offsets[first : after + 1]
        state = hashlib.sha256(np.diff(offsets).astype("<i8").tobytes())
        state.update(np.ascontiguousarray(marks[:, first:after]).tobytes())
        if after > first:
            state.update(texts.data[offsets[0] : offsets[-1]].tobytes())
        digests.append(state.hexdigest())
    return digests
