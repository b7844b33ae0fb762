"""What the page says, in two languages, kept in wording.toml: both stand in the page and one of them is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from markupsafe import Markup, escape

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
    text = files(__package__).joinpath("templates").joinpath("wording.toml").read_text("utf-8")
    return {key: Word(value["en"], value["zh"]) for key, value in tomllib.loads(text).items()}


def script_words() -> dict[str, list[str]]:
    """Those that the page's script says."""
    spoken = ("js.", "state.")
    plain = ("any", "undecided", "release", "agree")
    return {key: list(word) for key, word in words().items() if key.startswith(spoken) or key in plain}


def in_both(key: str, **values: Any) -> Markup:
    """The text in both languages; values are escaped, whole numbers get their separators."""
    word = words()[key]
    shown = {name: f"{value:,}" if isinstance(value, int) else value for name, value in values.items()}
    return Markup('<span class="l-en" lang="en">{}</span><span class="l-zh" lang="zh-Hans">{}</span>').format(
        *(_filled(text, shown) for text in word)
    )


def _filled(text: str, values: Mapping[str, Any]) -> Markup:
    return escape(text).format(**values)


Say = Callable[..., Markup]
