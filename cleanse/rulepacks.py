"""Rule packs: TOML files in, a set of rules out that judges batches of texts and explains what it found."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from importlib import import_module
from importlib.metadata import entry_points, version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from cleanse import __version__, measures, repairs
from cleanse.measures import TextBatch
from cleanse.records import EventKind
from cleanse.rule_evaluation import Hits, evaluate
from cleanse.rule_explanation import Explanation, View, explain
from cleanse.rulepack_schema import PackError, Rule, RuleReader

if sys.version_info >= (3, 11):
    from importlib.resources.abc import Traversable

    import tomllib
else:
    from importlib.abc import Traversable

    import tomli as tomllib

__all__ = ["Hits", "PackError", "Rule", "RuleSet", "available", "check", "load_packs", "rules_from"]

if TYPE_CHECKING:
    from cleanse.rule_check import Problem

GROUP = "cleanse.rules"
DEFAULT = "default"


@dataclass(frozen=True)
class PackText:
    """The text of one TOML file and where it came from: all that is needed to build its rules again."""

    name: str
    origin: str
    text: str


@dataclass(frozen=True)
class RuleSet:
    """Rules of some packs, ready to judge. Pickles as the texts of its packs."""

    packs: tuple[PackText, ...]
    rules: tuple[Rule, ...]
    code_digest: str  # sha256 over the modules and data files behind the measures

    def get(self, rule_id: str) -> Rule:
        """The rule of that id. Raises KeyError when no loaded pack has it."""
        return self._by_id[rule_id]

    def event_rule(self, kind: EventKind) -> Rule:
        """The rule that claims a reader's event. Raises KeyError when no loaded pack does."""
        return self._by_event[kind]

    def evidence_rule(self, conclusion: str) -> Rule:
        """The rule that claims a conclusion of a stage between the passes. Raises KeyError when no pack does."""
        return self._by_evidence[conclusion]

    @cached_property
    def fingerprint(self) -> str:
        """sha256 hex over everything that can change a verdict: rules, measures' code and data, versions."""
        state = {
            "rules": [_canonical(rule) for rule in self.rules],
            "code": self.code_digest,
            "versions": {name: version(name) for name in ("ftfy", "numpy", "pyarrow", "regex")},
            "cleanse": __version__,
        }
        return hashlib.sha256(orjson.dumps(state, option=orjson.OPT_SORT_KEYS)).hexdigest()

    def evaluate(self, texts: TextBatch) -> Hits:
        """Every limit that a segment of the batch crosses, ordered by (record, segment, rule)."""
        return evaluate(self.rules, texts)

    def explain(self, hits: Hits, view: View) -> list[Explanation]:
        """What each hit says to a person, in the hits' order."""
        return list(explain(self.rules, hits, view))

    def repair(self, rule_id: str, text: str) -> str:
        """The text as the rule's repair leaves it (idempotent); unchanged for a rule without a repair."""
        rule = self.get(rule_id)
        return text if rule.repair is None else repairs.get(rule.repair).apply(text)

    def mend(self, text: str, rule_ids: Iterable[str]) -> str:
        """The text after the repairs of several rules, strongest first (mojibake holds control characters)."""
        wanted = {self.get(rule_id).id for rule_id in rule_ids}
        for rule in self._mending:
            if rule.id in wanted:
                text = self.repair(rule.id, text)
        return text

    @cached_property
    def _mending(self) -> list[Rule]:
        """The rules with a repair, strongest first."""
        mending = [rule for rule in self.rules if rule.repair is not None]
        return sorted(mending, key=lambda rule: (-rule.strength, rule.id))

    @cached_property
    def _by_id(self) -> dict[str, Rule]:
        return {rule.id: rule for rule in self.rules}

    @cached_property
    def _by_event(self) -> dict[EventKind, Rule]:
        return {rule.event: rule for rule in reversed(self.rules) if rule.event is not None}

    @cached_property
    def _by_evidence(self) -> dict[str, Rule]:
        return {rule.evidence: rule for rule in reversed(self.rules) if rule.evidence is not None}

    def __reduce__(self) -> tuple[Callable[[tuple[PackText, ...]], RuleSet], tuple[tuple[PackText, ...]]]:
        return rules_from, (self.packs,)


def load_packs(names_or_paths: Sequence[str] = (DEFAULT,)) -> RuleSet:
    """The rules of the named packs: "default", a built-in pack's name, or the path of a TOML file.

    Raises PackError naming file, rule, key and what was expected.
    """
    installed = {pack.name: pack for pack in available()}
    chosen: dict[str, PackText] = {}
    for name in names_or_paths:
        if name == DEFAULT:
            chosen.update((pack.origin, pack) for pack in installed.values() if _is_default(pack))
        elif name in installed:
            chosen[installed[name].origin] = installed[name]
        elif name.endswith(".toml") or Path(name).is_file():
            chosen[name] = _read_path(name)
        else:
            known = ", ".join(sorted(installed))
            raise PackError(f"no rule pack is called {name!r}; expected {DEFAULT}, {known}, or a path to a TOML file")
    return rules_from(tuple(chosen.values()))


def check(rules: RuleSet) -> list[Problem]:
    """Every promise that a rule does not keep: see ``cleanse.rule_check``. [] when all examples hold."""
    from cleanse.rule_check import check as check_rules  # noqa: PLC0415 - pulls in the readers

    return check_rules(rules.rules)


def available() -> list[PackText]:
    """All packs of the installed packages, by name. Raises PackError when two have the same name."""
    found: dict[str, PackText] = {}
    for module in _modules():
        for entry in sorted(files(module).iterdir(), key=lambda e: e.name):
            if entry.name.endswith(".toml"):
                name = entry.name.removesuffix(".toml")
                if name in found or name == DEFAULT:
                    raise PackError(f"{module}/{entry.name}: the name {name!r} is taken")
                found[name] = PackText(name, f"{module}/{entry.name}", entry.read_text("utf-8"))
    return list(found.values())


def _modules() -> list[str]:
    """Modules of the entry-point group, imported, so that their measures and repairs are registered."""
    names = sorted({entry.value.split(":")[0] for entry in entry_points(group=GROUP)})
    for name in names:
        import_module(name)
    return names


def _read_path(path: str) -> PackText:
    try:
        return PackText(Path(path).stem, path, Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PackError(f"{path}: cannot be read as a rule pack: {error}") from error


@lru_cache(maxsize=64)
def _parse(pack: PackText) -> dict[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(pack.text)
    except tomllib.TOMLDecodeError as error:
        raise PackError(f"{pack.origin}: not valid TOML: {error}") from error
    return document


def _is_default(pack: PackText) -> bool:
    header = _parse(pack).get("pack", {})
    return not isinstance(header, dict) or header.get("default", True) is not False


@lru_cache(maxsize=4)
def rules_from(packs: tuple[PackText, ...]) -> RuleSet:
    """The rules of packs that are at hand as texts. Raises PackError naming file, rule, key and what was expected."""
    modules = _modules()
    rules: dict[str, Rule] = {}
    for pack in packs:
        document = _parse(pack)
        tables = document.get("rule", [])
        if not isinstance(tables, list) or not tables:
            raise PackError(f"{pack.origin}: expected at least one [[rule]] table")
        reader = RuleReader(pack.origin, pack.name)
        for index, table in enumerate(tables):
            rule = reader.read(table, index)
            if rule.id in rules:
                raise PackError(f"{pack.origin}: rule {rule.id!r}: id: already used in {rules[rule.id].origin}")
            _resolve(rule)
            rules[rule.id] = rule
    return RuleSet(packs, tuple(rules.values()), _code_digest(modules))


def _resolve(rule: Rule) -> None:
    """Checks that the names a rule uses are registered. Raises PackError."""
    try:
        for name in [*([rule.measure] if rule.measure else []), *(name for name, _ in rule.where)]:
            measures.get(name)
        if rule.repair:
            repairs.get(rule.repair)
    except KeyError as error:
        raise PackError(f"{rule.origin}: rule {rule.id!r}: {error.args[0]}") from error


_WORDS = frozenset({"origin", "pack", "why", "references", "should_match", "should_pass", "unexampled", "since"})


def _canonical(rule: Rule) -> dict[str, Any]:
    """What of a rule can change a verdict or a finding."""
    return {field.name: getattr(rule, field.name) for field in fields(rule) if field.name not in _WORDS}


def _code_digest(modules: list[str]) -> str:
    digest = hashlib.sha256()
    for module in modules:
        for entry in _walk(files(module)):
            if entry.name.endswith((".py", ".npz", ".npy")):
                digest.update(entry.name.encode() + b"\0" + entry.read_bytes())
    return digest.hexdigest()


def _walk(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _walk(entry)
        else:
            yield entry
