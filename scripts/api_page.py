"""Writes docs/api.md: every public name of the package, with its signature and what its docstring says.

usage: python -m scripts.api_page [TARGET]

Needs torch, for one of the names is a class of its family.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import cleanse
from scripts import made_page

TARGET = Path(__file__).resolve().parents[1] / "docs" / "api.md"
INTRODUCTION = """\
# The public names

This page is made from the code by `make docs`; a test keeps the two the same. Everything here is imported from
`cleanse` itself; `import cleanse` loads none of it before its first use.
"""
GROUPS = {
    "Before training": ("scan", "ScanResult", "release", "Released"),
    "Inside a pipeline": ("Filter", "FilterCollator", "FilteredIterable", "mindspore_filter"),
    "After a crash": ("replay", "ReplayResult", "order", "OrderUnknown", "SkipCollator", "WithRowIds"),
    "During training": ("Guard", "Ledger"),
    "Errors": ("CleanseError", "UsageError", "NoRecordsError"),
}
_STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes):$")
_COMMENT = re.compile(r"^    (\w+): .*  # (.*)$", re.MULTILINE)
_ITEM = re.compile(r"^    (\*{0,2}\w[\w., |*]*?)(?: \(.*?\))?: (.*)$")


def page() -> str:
    """The whole page. Raises KeyError where a public name belongs to no group."""
    named = [name for name in cleanse.__all__ if name != "__version__"]
    grouped = {name for names in GROUPS.values() for name in names}
    if missing := sorted(set(named) ^ grouped):
        raise KeyError(f"scripts/api_page.py: give {', '.join(missing)} a group, or take it out of one")
    parts = [INTRODUCTION]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += [*_entry(name, getattr(cleanse, name)), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if inspect.isclass(thing):
        yield from _class(name, thing)
    else:
        yield f"```python\n{_signature(name, thing)}\n```\n"
        yield from _prose(thing)


def _class(name: str, thing: type) -> Iterator[str]:
    if issubclass(thing, BaseException):
        yield f"```python\nclass {name}({thing.__mro__[1].__name__})\n```\n"
    elif not dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
        yield f"```python\n{_signature(name, thing.__init__)}\n```\n"
    else:
        yield f"```python\nclass {name}\n```\n"
    yield from _prose(thing)
    if not dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
        yield from _prose(thing.__init__)  # type: ignore[misc]  # of this very class
    if dataclasses.is_dataclass(thing):
        comments = dict(_COMMENT.findall(inspect.getsource(thing)))
        for field in dataclasses.fields(thing):
            said = f": {comments[field.name]}" if field.name in comments else ""
            yield f"- `{field.name}: {field.type}`{said}"
        yield ""
    yield from _members(name, thing)


def _members(name: str, thing: type) -> Iterator[str]:
    for member, value in vars(thing).items():
        if member == "__call__":
            yield f"#### {name}(...) called\n\n```python\n{_signature('__call__', value)}\n```\n"
            yield from _prose(value)
        if member.startswith("_"):
            continue
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if isinstance(value, property):
            yield f"#### {name}.{member}\n"
            yield from _prose(value.fget)
        elif inspect.isfunction(function):
            yield f"#### {name}.{member}\n\n```python\n{_signature(member, function)}\n```\n"
            yield from _prose(function)


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    given = [p for p in signature.parameters.values() if p.name not in {"self", "cls"}]
    shown: list[str] = []
    starred = False
    for parameter in given:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        starred |= parameter.kind is parameter.VAR_POSITIONAL
        stars = _STARS.get(parameter.kind.name, "")
        text = f"{stars}{parameter.name}"
        if parameter.annotation is not parameter.empty:
            text += f": {_annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {_default(parameter.default)}"
        shown.append(text)
    returns = (
        ""
        if signature.return_annotation in (signature.empty, None, "None")
        else (f" -> {_annotation(signature.return_annotation)}")
    )
    flat = f"{name}({', '.join(shown)}){returns}"
    if len(flat) <= 100:  # noqa: PLR2004 - a line of this page
        return flat
    return f"{name}(\n" + "".join(f"    {text},\n" for text in shown) + f"){returns}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _default(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    return value.__name__ if inspect.isfunction(value) or inspect.isclass(value) else repr(value)


def _prose(thing: Any) -> Iterator[str]:
    """A docstring in Markdown: sections as lists, code as code."""
    lines = inspect.cleandoc(thing.__doc__ or "").splitlines()
    section, item = False, ""
    for line in lines:
        found = _SECTION.match(line)
        if found:
            yield from _flushed(item)
            item = ""
            yield f"{found[1]}:\n"
            section = True
        elif section and (parts := _ITEM.match(line)):
            yield from _flushed(item)
            item = f"- `{parts[1]}`: {parts[2]}"
        elif section and item and line.startswith("     "):
            item += f" {line.strip()}"
        else:
            yield from _flushed(item)
            item = ""
            section = section and (not line or line.startswith("    "))
            yield _ticks(line.strip() if section else line)
    yield from _flushed(item)
    yield ""


def _flushed(item: str) -> Iterator[str]:
    if item:
        yield _ticks(item)


def _ticks(line: str) -> str:
    """Double backquotes are single ones in Markdown, and a block of code needs no second colon."""
    return re.sub(r"::$", ":", line.replace("``", "`"))


def main() -> None:
    """Writes the page where the first argument says, or to docs/."""
    made_page.write(page(), TARGET)


if __name__ == "__main__":
    main()
