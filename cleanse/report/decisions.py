"""What a reviewer decided about records, as a file: written by the page and the review server, read by release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from cleanse.atomic import write_json
from cleanse.errors import UsageError

FILE = "decisions.json"
FORMAT = "cleanse-decisions/1"
KINDS = ("release", "agree")
MOST_NOTE = 2000


class Decision(NamedTuple):
    """One decision. ``release``: it belongs into clean/; ``agree``: it is rightly held."""

    id: str
    decision: str
    note: str = ""


Decisions = dict[str, Decision]


def parse(content: bytes, name: str) -> Decisions:
    """The decisions in a file's bytes, by record.

    Raises UsageError naming the file and what is wrong with it.
    """
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{name} is not JSON: {error}. Expected what the report exports") from None
    if not isinstance(value, Mapping) or value.get("format") != FORMAT or not isinstance(value.get("decisions"), list):
        raise UsageError(f'{name} holds no decisions: expected {{"format": "{FORMAT}", "decisions": [...]}}')
    found: Decisions = {}
    for place, item in enumerate(value["decisions"]):
        decision = one(item)
        if decision is None:
            raise UsageError(
                f"{name}: decision {place} is {str(item)[:80]!r}: expected an id, and one of {', '.join(KINDS)}"
            )
        found[decision.id] = decision
    return found


def one(item: Any) -> Decision | None:
    """A decision from its JSON value; None where it is none."""
    if not isinstance(item, Mapping):
        return None
    name, kind, note = item.get("id"), item.get("decision"), item.get("note", "")
    if not isinstance(name, str) or not name or kind not in KINDS or not isinstance(note, str):
        return None
    return Decision(name, kind, note[:MOST_NOTE])


def load(path: Path) -> Decisions:
    """The decisions of a file, none where there is no file. Raises UsageError as ``parse``."""
    return parse(path.read_bytes(), str(path)) if path.exists() else {}


def save(path: Path, decisions: Iterable[Decision]) -> None:
    """Commits the decisions, by record."""
    items = [decision._asdict() for decision in sorted(decisions)]
    write_json(path, {"format": FORMAT, "decisions": items})
