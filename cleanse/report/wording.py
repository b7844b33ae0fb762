"""What the page says, in two languages, kept in wording.toml: both stand in the page and one of them is shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from cleanse import safe_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Word(NamedTuple):
    """One text in both languages, with {names} to fill in."""

    en: str
    zh: str


@cache
def words() -> Mapping[str, Word]:
    """All texts by key."""
    return {key: Word(value["en"], value["zh"]) for key, value in _table("wording.toml").items()}


@cache
def rules_in_chinese() -> Mapping[str, str]:
    """What built-in rules find, by rule."""
    return _table("rules_zh.toml")


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("templates").joinpath(name).read_text("utf-8"))


def of_rule(rule: str, summary: str) -> Markup:
    """What a rule finds: its pack's own words, and Chinese ones where there are any."""
    chinese = rules_in_chinese().get(rule)
    said = safe_text.escape(summary)
    return escape(said) if chinese is None else _both(escape(said), escape(chinese))


def script_words() -> dict[str, list[str]]:
    """Those that the page's script says."""
    spoken = ("js.", "state.")
    plain = ("any", "undecided", "release", "agree")
    return {key: list(word) for key, word in words().items() if key.startswith(spoken) or key in plain}


def in_both(key: str, **values: Any) -> Markup:
    """The text in both languages; values are escaped, whole numbers get their separators."""
    word = words()[key]
    shown = {name: f"{value:,}" if isinstance(value, int) else value for name, value in values.items()}
    return _both(*(_filled(text, shown) for text in word))


def _both(english: Markup, chinese: Markup) -> Markup:
    return Markup('<span class="l-en" lang="en">{}</span><span class="l-zh" lang="zh-Hans">{}</span>').format(
        english, chinese
    )


def _filled(text: str, values: Mapping[str, Any]) -> Markup:
    return escape(text).format(**values)
