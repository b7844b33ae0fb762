"""Writes docs/rules.md: every built-in rule, from the packs themselves.

usage: python -m scripts.rules_page [TARGET]
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cleanse import measures
from cleanse.records import Role
from cleanse.rulepack_schema import Bounds, Example, Limit
from cleanse.rulepacks import Rule, load_packs
from cleanse.safe_text import escape
from scripts import made_page

TARGET = Path(__file__).resolve().parents[1] / "docs" / "rules.md"
INTRODUCTION = """\
# The built-in rules

This page is made from the rule packs by `make docs`; a test keeps the two the same. `cleanse rules show ID` prints one
of these entries, `cleanse rules check` runs all examples.

A rule measures one thing about a text and compares it with a limit. Its action says what follows:

| action | what happens to the record |
|---|---|
| reject | moved to quarantine on this evidence alone |
| suspect | stays, listed, until the probe or another test agrees (`--suspects quarantine` moves it at once) |
| repair | stays, its text mended in `clean/`; before and after are in the findings |
| note | stays; a person should know |

Some rules judge no text: what a reader notices about bytes and files, and what is known only when all records were
seen, such as copies, triggers, the probe's measurements, a person's decision. Limits that name a script (ISO 15924)
count for texts mainly in that script, instead of the general one.
"""
TITLES = {
    "encoding": "Encoding: bytes and characters",
    "gibberish": "Gibberish: text that says nothing",
    "length": "Length",
    "repetition": "Repetition",
    "pattern": "Patterns",
    "structure": "Structure of a record",
    "tokens": "Tokens: what the tokenizer makes of the text",
    "trainer": "Trainer: what will be learnt from the record",
    "reader": "Reading: files and lines",
    "corpus": "Across records",
    "probe": "Probe: what a model says",
    "review": "Review: what people decided",
}
_MOST_SHOWN = 80  # characters of an example


def page() -> str:
    """The whole page."""
    rules = load_packs(("default",)).rules
    packs = dict.fromkeys(rule.pack for rule in rules)
    ordered = sorted(packs, key=lambda pack: (list(TITLES).index(pack) if pack in TITLES else len(TITLES), pack))
    parts = [INTRODUCTION]
    for pack in ordered:
        mine = [rule for rule in rules if rule.pack == pack]
        parts.append(f"## {TITLES.get(pack, pack)}\n")
        parts.append("| rule | action | what it finds |\n|---|---|---|")
        parts += [
            f"| [{rule.id}](#{_anchor(rule.id)}) | {rule.action.value} | {_text(rule.summary)} |" for rule in mine
        ]
        parts.append("")
        for rule in mine:
            parts += [*_entry(rule), ""]
    return "\n".join(parts).rstrip() + "\n"


def _anchor(rule_id: str) -> str:
    """How GitHub names a heading."""
    return rule_id.lower().replace(".", "").replace(" ", "-")


def _entry(rule: Rule) -> Iterator[str]:
    yield f"### {rule.id}\n"
    yield f"**{_text(rule.summary)}** ({rule.action.value}).\n{_text(' '.join(rule.why.split()))}\n"
    yield f"- judges: {_criterion(rule)}"
    guards = [*_guards(rule)]
    if guards:
        yield f"- only where: {'; '.join(guards)}"
    if rule.repair:
        yield f"- repair: `{rule.repair}`"
    for kind, examples in (("matches", rule.should_match), ("passes", rule.should_pass)):
        if examples:
            yield f"- {kind}: {', '.join(_example(example) for example in examples)}"
    if rule.unexampled:
        yield f"- no example: {_text(rule.unexampled)}"
    if rule.references:
        yield f"- see: {', '.join(_reference(reference) for reference in rule.references)}"
    yield f"- since {rule.since}"


def _criterion(rule: Rule) -> str:
    if rule.event is not None:
        return f"what a reader notices (`{rule.event.value}`)"
    if rule.evidence is not None:
        return f"the conclusion `{rule.evidence}`, when all records were seen"
    if rule.pattern is not None:
        return f"matches of {_code(rule.pattern.text)} ({rule.pattern.engine}), {_limit(rule.limit)}"
    assert rule.measure is not None
    measure = measures.get(rule.measure)
    return (
        f"`{measure.name}`, in {measure.unit}: {_text(' '.join(measure.doc.split())).rstrip('.')}; {_limit(rule.limit)}"
    )


def _limit(limit: Limit | None) -> str:
    if limit is None:
        return "no limit"
    said = [_bounds(limit.default)] if limit.default is not None else []
    grouped: dict[Bounds, list[str]] = {}
    for script, bounds in limit.per_script:
        grouped.setdefault(bounds, []).append(script)
    said += [f"{_bounds(bounds)} in {', '.join(scripts)}" for bounds, scripts in grouped.items()]
    return "; ".join(said) or "no limit"


def _bounds(bounds: Bounds) -> str:
    sides = [("at least", bounds.min), ("at most", bounds.max)]
    return " and ".join(f"{words} {value:g}" for words, value in sides if value is not None) or "any value"


def _guards(rule: Rule) -> Iterator[str]:
    if rule.roles:
        yield f"the role is {' or '.join(Role(role).name.lower() for role in rule.roles)}"
    if rule.supervised is not None:
        yield "the text is trained on" if rule.supervised else "the text is not trained on"
    for name, limit in rule.where:
        yield f"`{name}` is {_limit(limit)}"


def _example(example: Example) -> str:
    if example.raw is not None:
        return f"bytes {_code(example.raw[:40].hex(' '))}" + ("..." if len(example.raw) > 40 else "")  # noqa: PLR2004
    if example.record:
        turns = (f"{role.name.lower()}: {_quoted(text)}" for role, text, _ in example.record[:3])
        return f"a record ({'; '.join(turns)}{'; ...' if len(example.record) > 3 else ''})"  # noqa: PLR2004
    return _quoted(example.text)


def _quoted(text: str | None) -> str:
    if text is None:
        return "null"
    shown = escape(text[:_MOST_SHOWN])
    more = f" ... ({len(text):,} characters)" if len(text) > _MOST_SHOWN else ""
    return _code(shown) + more if text else "an empty text"


def _code(text: str) -> str:
    """A code span, whatever backquotes the text has."""
    fence = "`"
    while fence in text:
        fence += "`"
    edge = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{fence}{edge}{text}{edge}{fence}"


def _text(text: str) -> str:
    """Plain words in Markdown: nothing in them is markup."""
    shown = escape(text)
    for sign in "\\`*_<>|[]":
        shown = shown.replace(sign, f"\\{sign}")
    return shown


def _reference(reference: str) -> str:
    return f"<{reference}>" if reference.startswith(("http://", "https://")) else _text(reference)


def main() -> None:
    """Writes the page where the first argument says, or to docs/."""
    made_page.write(page(), TARGET)


if __name__ == "__main__":
    main()
