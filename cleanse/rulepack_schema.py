"""One rule as a typed value, and how a TOML table becomes one. Every mistake names file, rule and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from cleanse.records import Action, EventKind, Role


class PackError(ValueError):
    """A rule pack that cannot be used: the message names the file, the rule, the key, and what was expected."""


@dataclass(frozen=True)
class Bounds:
    """What a value may be, both ends included. None: no bound on that side."""

    min: float | None = None
    max: float | None = None


@dataclass(frozen=True)
class Limit:
    """Bounds for every script that has no entry of its own, and for those that have one (ISO 15924 codes)."""

    default: Bounds | None
    per_script: tuple[tuple[str, Bounds], ...] = ()


@dataclass(frozen=True)
class Pattern:
    """A regular expression: ``re2`` is linear in the text, ``regex`` runs under a timeout per text."""

    text: str
    engine: str = "re2"
    timeout_s: float = 0.1


@dataclass(frozen=True)
class Example:
    """One example of a rule: a text (null for None), or the raw bytes of an input file for event rules."""

    text: str | None = None
    raw: bytes | None = None
    suffix: str = ".jsonl"
    role: Role = Role.TEXT
    supervised: bool = True
    record: tuple[tuple[Role, str | None, bool], ...] = ()  # several segments instead of one
    options: tuple[tuple[str, Any], ...] = ()  # reader options for raw bytes


@dataclass(frozen=True)
class Rule:
    """A rule: what is measured, what is too much, what to do, why, and examples on both sides."""

    id: str
    pack: str
    origin: str  # file it was read from
    summary: str
    why: str
    action: Action
    since: str
    measure: str | None = None
    limit: Limit | None = None
    pattern: Pattern | None = None
    event: EventKind | None = None
    evidence: str | None = None  # a conclusion of a stage between the passes, such as "probe.spike"
    where: tuple[tuple[str, Limit], ...] = ()
    roles: tuple[Role, ...] = ()  # empty: every role
    supervised: bool | None = None  # None: trained on or not
    repair: str | None = None
    strength: int = 50  # 0 to 100: order among the reasons of one record
    references: tuple[str, ...] = ()
    should_match: tuple[Example, ...] = ()
    should_pass: tuple[Example, ...] = ()
    unexampled: str | None = None  # why no example shows the rule at work


_KEYS = frozenset(
    [
        "id",
        "summary",
        "why",
        "action",
        "since",
        "measure",
        "limit",
        "pattern",
        "engine",
        "timeout",
        "event",
        "evidence",
        "where",
        "roles",
        "supervised",
        "repair",
        "strength",
        "references",
        "should_match",
        "should_pass",
        "unexampled",
    ]
)
_EXAMPLE_KEYS = frozenset(
    ["text", "hex", "then", "repeat", "times", "role", "supervised", "record", "suffix", "options", "null"]
)


class RuleReader:
    """Turns the ``[[rule]]`` tables of one file into rules. Raises PackError at the first mistake."""

    def __init__(self, origin: str, pack: str) -> None:
        """Errors will name ``origin``; rules will carry ``pack``."""
        self.origin = origin
        self.pack = pack
        self.rule = "?"

    def fail(self, key: str, expected: str) -> NoReturn:
        """Raises the PackError for one key of the rule that is being read."""
        raise PackError(f"{self.origin}: rule {self.rule!r}: {key}: {expected}")

    def read(self, table: Mapping[str, Any], index: int) -> Rule:
        """One rule. ``index`` names a rule that has no id yet."""
        self.rule = str(table.get("id", f"number {index + 1}"))
        for key in table:
            if key not in _KEYS:
                self.fail(key, f"no such key; known keys are {', '.join(sorted(_KEYS))}")
        kinds = [key for key in ("measure", "pattern", "event", "evidence") if key in table]
        if len(kinds) != 1:
            self.fail("measure", f"expected exactly one of measure, pattern, event, evidence; found {kinds or 'none'}")
        limit = self._limit("limit", table["limit"]) if "limit" in table else None
        if "measure" in table and limit is None:
            self.fail("limit", "a measure needs a limit such as { max = 0 }")
        if "pattern" in table and limit is None:
            limit = Limit(Bounds(max=0.0))
        return Rule(
            id=self._text(table, "id"),
            pack=self.pack,
            origin=self.origin,
            summary=self._text(table, "summary"),
            why=self._text(table, "why"),
            action=self._one_of(table, "action", Action),
            since=self._text(table, "since"),
            measure=self._text(table, "measure") if "measure" in table else None,
            limit=limit,
            pattern=self._pattern(table) if "pattern" in table else None,
            event=self._one_of(table, "event", EventKind) if "event" in table else None,
            evidence=self._text(table, "evidence") if "evidence" in table else None,
            where=tuple((k, self._limit(f"where.{k}", v)) for k, v in self._table(table, "where").items()),
            roles=tuple(self._role("roles", r) for r in self._list(table, "roles")),
            supervised=self._flag(table, "supervised"),
            repair=self._repair(table),
            strength=self._strength(table),
            references=tuple(str(r) for r in self._list(table, "references")),
            should_match=tuple(self._example("should_match", e) for e in self._list(table, "should_match")),
            should_pass=tuple(self._example("should_pass", e) for e in self._list(table, "should_pass")),
            unexampled=self._text(table, "unexampled") if "unexampled" in table else None,
        )

    def _text(self, table: Mapping[str, Any], key: str) -> str:
        value = table.get(key)
        if not isinstance(value, str) or not value.strip():
            self.fail(key, f"expected a text, found {value!r}")
        return value

    def _table(self, table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = table.get(key, {})
        if not isinstance(value, dict):
            self.fail(key, f"expected a table, found {value!r}")
        return value

    def _list(self, table: Mapping[str, Any], key: str) -> list[Any]:
        value = table.get(key, [])
        if not isinstance(value, list):
            self.fail(key, f"expected a list, found {value!r}")
        return value

    def _flag(self, table: Mapping[str, Any], key: str) -> bool | None:
        value = table.get(key)
        if value is not None and not isinstance(value, bool):
            self.fail(key, f"expected true or false, found {value!r}")
        return value

    def _one_of(self, table: Mapping[str, Any], key: str, kind: Any) -> Any:
        try:
            return kind(table.get(key))
        except ValueError:
            self.fail(key, f"expected one of {', '.join(k.value for k in kind)}; found {table.get(key)!r}")

    def _role(self, key: str, value: Any) -> Role:
        known = {role.name.lower(): role for role in Role}
        if not isinstance(value, str) or value not in known:
            self.fail(key, f"expected roles out of {', '.join(known)}; found {value!r}")
        return known[value]

    def _repair(self, table: Mapping[str, Any]) -> str | None:
        if (table.get("action") == Action.REPAIR.value) != ("repair" in table):
            self.fail("repair", 'action = "repair" and the name of a repair belong together')
        return self._text(table, "repair") if "repair" in table else None

    def _strength(self, table: Mapping[str, Any]) -> int:
        value = table.get("strength", 50)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100:  # noqa: PLR2004
            self.fail("strength", f"expected a whole number from 0 to 100, found {value!r}")
        return value

    def _pattern(self, table: Mapping[str, Any]) -> Pattern:
        engine, timeout = table.get("engine", "re2"), table.get("timeout", 0.1)
        if engine not in ("re2", "regex"):
            self.fail("engine", f'expected "re2" or "regex", found {engine!r}')
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= 10:  # noqa: PLR2004
            self.fail("timeout", f"expected seconds above 0 and up to 10, found {timeout!r}")
        return Pattern(self._text(table, "pattern"), engine, float(timeout))

    def _bounds(self, key: str, value: Mapping[str, Any]) -> Bounds:
        if not value or any(k not in ("min", "max") for k in value):
            self.fail(key, f"expected {{ min = number, max = number }} or one of them, found {value!r}")
        for number in value.values():
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                self.fail(key, f"expected numbers, found {number!r}")
        low, high = value.get("min"), value.get("max")
        if low is not None and high is not None and low > high:
            self.fail(key, f"min {low} is above max {high}")
        return Bounds(None if low is None else float(low), None if high is None else float(high))

    def _limit(self, key: str, value: Any) -> Limit:
        if not isinstance(value, dict) or not value:
            self.fail(key, f"expected a table such as {{ max = 0 }}, found {value!r}")
        if not any(isinstance(v, dict) for v in value.values()):
            return Limit(self._bounds(key, value))
        default: Bounds | None = None
        scripts: list[tuple[str, Bounds]] = []
        for code, bounds in value.items():
            if not isinstance(bounds, dict):
                self.fail(key, f"mixes bounds and scripts; write default = {{ ... }} for the rest: {value!r}")
            if code == "default":
                default = self._bounds(f"{key}.default", bounds)
            elif len(code) == 4 and code.isalpha() and code == code.title():  # noqa: PLR2004
                scripts.append((code, self._bounds(f"{key}.{code}", bounds)))
            else:
                self.fail(f"{key}.{code}", "expected an ISO 15924 code such as Latn, or default")
        return Limit(default, tuple(scripts))

    def _example(self, key: str, value: Any) -> Example:
        if isinstance(value, str):
            return Example(text=value)
        if not isinstance(value, dict) or any(k not in _EXAMPLE_KEYS for k in value):
            self.fail(key, f"expected a text or a table with {', '.join(sorted(_EXAMPLE_KEYS))}; found {value!r}")
        role = self._role(key, value.get("role", "text"))
        supervised = bool(value.get("supervised", True))
        if "hex" in value:
            try:
                raw = bytes.fromhex(str(value["hex"])) * int(value.get("times", 1))
                raw += bytes.fromhex(str(value.get("then", "")))
            except ValueError:
                self.fail(key, f"expected hexadecimal digits, found {value['hex']!r}")
            return Example(raw=raw, suffix=str(value.get("suffix", ".jsonl")),
                           options=tuple(sorted(value.get("options", {}).items())))  # fmt: skip
        if "record" in value:
            parts = tuple(
                (self._role(key, p.get("role", "text")), None if p.get("null") else str(p.get("text", "")),
                 bool(p.get("supervised", p.get("role") in ("assistant", "chosen", "rejected"))))
                for p in value["record"]
            )  # fmt: skip
            return Example(record=parts)
        if value.get("null"):
            return Example(text=None, role=role, supervised=supervised)
        text = str(value.get("text", "")) + str(value.get("repeat", "")) * int(value.get("times", 1))
        return Example(text=text, role=role, supervised=supervised)
