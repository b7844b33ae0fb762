"""``cleanse rules``: what the packs hold, and whether they keep their promises."""

from __future__ import annotations

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cleanse.errors import UsageError
from cleanse.rulepacks import Rule, load_packs
from cleanse.safe_text import escape

_DEFAULT = ("default",)


def list_rules(packs: tuple[str, ...], *, as_json: bool) -> None:
    """Prints id, action and summary of every rule."""
    rules = load_packs(packs or _DEFAULT).rules
    if as_json:
        click.echo(orjson.dumps({"rules": [_plain(rule) for rule in rules]}, option=orjson.OPT_INDENT_2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name, whole in (("rule", True), ("action", True), ("what it finds", False)):
        table.add_column(name, no_wrap=whole)
    for rule in rules:
        table.add_row(rule.id, rule.action.value, Text(escape(rule.summary)))
    Console(highlight=False).print(table)


def show_rule(rule_id: str, packs: tuple[str, ...], *, as_json: bool) -> None:
    """Prints all that one rule says. Raises UsageError, with close matches, when no pack has it."""
    loaded = load_packs(packs or _DEFAULT)
    try:
        rule = loaded.get(rule_id)
    except KeyError:
        from difflib import get_close_matches  # noqa: PLC0415 - only for the message

        near = ", ".join(get_close_matches(rule_id, [r.id for r in loaded.rules])) or "none like it"
        raise UsageError(f"no rule is called {rule_id!r} (close: {near}); see: cleanse rules list") from None
    if as_json:
        click.echo(orjson.dumps(_plain(rule), option=orjson.OPT_INDENT_2))
        return
    lines = [
        ("rule", rule.id),
        ("finds", rule.summary),
        ("why it hurts", " ".join(rule.why.split())),
        ("action", rule.action.value),
        ("judges", _criterion(rule)),
        ("repair", rule.repair or "none"),
        *(("matches", _example(example)) for example in rule.should_match),
        *(("passes", _example(example)) for example in rule.should_pass),
        *(("see", reference) for reference in rule.references),
        ("since", rule.since),
        ("stands in", rule.origin),
    ]
    table = Table.grid(padding=(0, 2))
    for name, text in lines:
        table.add_row(Text(name, style="bold"), Text(escape(text)))
    Console(highlight=False).print(table)


def check_rules(packs: tuple[str, ...], *, as_json: bool) -> bool:
    """Runs every example and prints what does not hold; returns whether all does."""
    from cleanse.rulepacks import check  # noqa: PLC0415 - reads raw examples through the sources

    loaded = load_packs(packs or _DEFAULT)
    problems = [str(problem) for problem in check(loaded)]
    if as_json:
        answer = {"rules": len(loaded.rules), "problems": problems}
        click.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2))
        return not problems
    for problem in problems:
        click.echo(escape(problem))
    n_examples = sum(len(rule.should_match) + len(rule.should_pass) for rule in loaded.rules)
    click.echo(f"{len(loaded.rules)} rules, {n_examples} examples, {len(problems)} problems")
    return not problems


def _criterion(rule: Rule) -> str:
    if rule.event is not None:
        return f"event {rule.event.value} of a reader"
    if rule.evidence is not None:
        return f"{rule.evidence}, which a stage between the two passes concludes"
    if rule.pattern is not None:
        return f"pattern {rule.pattern.text} ({rule.pattern.engine})"
    limits = [] if rule.limit is None else [("", rule.limit.default), *rule.limit.per_script]
    described = [
        " ".join(
            part
            for part in (
                script,
                "" if bounds.min is None else f"at least {bounds.min:g}",
                "" if bounds.max is None else f"at most {bounds.max:g}",
            )
            if part
        )
        for script, bounds in limits
        if bounds is not None
    ]
    return f"{rule.measure}: {'; '.join(described)}"


def _example(example: object) -> str:
    raw = getattr(example, "raw", None)
    return f"bytes {raw[:60].hex()}" if raw is not None else repr(getattr(example, "text", None))[:200]


def _plain(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.id,
        "pack": rule.pack,
        "summary": rule.summary,
        "why": rule.why,
        "action": rule.action.value,
        "judges": _criterion(rule),
        "repair": rule.repair,
        "references": list(rule.references),
        "since": rule.since,
        "origin": rule.origin,
    }
