"""What a format is: which columns hold text, who speaks in each, and what a trainer learns from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cleanse.records import Role

Kind = Literal["text", "messages", "history"]
"""``text``: a string, or whatever stands there instead; ``messages``: a list of turns (also as JSON text);
``history``: a list of [question, answer] pairs."""


class FormatError(ValueError):
    """The columns fit no format, or not the one that was asked for."""


@dataclass(frozen=True)
class Part:
    """One column of a format, in reading order.

    A required part always gives a segment, a null one where nothing is there, so that a rule can say so. An
    optional part that is null or empty gives none: an empty ``input`` is how alpaca data says "no input".
    """

    column: str
    kind: Kind
    role: Role
    supervised: bool
    required: bool = True


@dataclass(frozen=True)
class Format:
    """A detected format: hashable, picklable, and the same in every worker."""

    name: str
    parts: tuple[Part, ...]
    note: str = ""

    def describe(self) -> str:
        """One line to print, such as ``alpaca: instruction + input -> output``."""
        asked = [p.column for p in self.parts if not p.supervised]
        learnt = [p.column for p in self.parts if p.supervised]
        flow = " -> ".join(" + ".join(side) for side in (asked, learnt) if side)
        return f"{self.name}: {flow}" + (f" ({self.note})" if self.note else "")

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``from_json`` gives an equal format back."""
        parts = [[p.column, p.kind, int(p.role), p.supervised, p.required] for p in self.parts]
        return {"name": self.name, "parts": parts, "note": self.note}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Format:
        """The format that ``to_json`` described."""
        parts = tuple(Part(c, k, Role(r), s, q) for c, k, r, s, q in value["parts"])
        return cls(value["name"], parts, value["note"])


def asked(column: str, role: Role = Role.USER, *, required: bool = True) -> Part:
    """A column that the model reads and is not trained on."""
    return Part(column, "text", role, supervised=False, required=required)


def answered(column: str, role: Role = Role.ASSISTANT) -> Part:
    """A column that the model is trained to write."""
    return Part(column, "text", role, supervised=True)
