"""``cleanse doctor``: whether this installation can do its work, and what it may use."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata, util
from importlib.metadata import entry_points
from pathlib import Path

import click
import orjson

from cleanse import __version__
from cleanse.config import usable_processors
from cleanse.probing.backends import GROUP
from cleanse.rulepacks import PackError, load_packs
from cleanse.safe_text import escape

_NAME = re.compile(r"^[A-Za-z0-9_.-]+")
_OPTIONAL = {"torch": "torch", "mindspore": "mindspore", "transformers": "transformers", "ray": "ray"}
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def examine(*, as_json: bool) -> bool:
    """Prints what was found; returns whether everything that is needed is there."""
    problems: list[str] = []
    answer = {
        "cleanse": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": usable_processors(),
        "memory_bytes": memory_bytes(),
        "libraries": _libraries(problems),
        "optional": {name: _optional(name, module) for name, module in _OPTIONAL.items()},
        "rules": _rules(problems),
        "probes": _probes(),
        "problems": problems,
    }
    if as_json:
        click.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2))
        return not problems
    for name, value in answer.items():
        if isinstance(value, dict):
            lines = [f"{key} {content}" for key, content in value.items()]
            value = ("\n" + " " * 15).join(lines) if name == "probes" else ", ".join(lines)  # noqa: PLW2901 - to print
        elif isinstance(value, list):
            value = "; ".join(value) or "none"  # noqa: PLW2901
        for line, text in enumerate(str(value).split("\n")):
            click.echo(f"{'' if line else name:14} {escape(text.strip())}")
    return not problems


def memory_bytes() -> int:
    """Memory this process may use: that of the machine, or of its container where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for place in _CGROUP_LIMITS:
        try:
            text = Path(place).read_text("ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def _libraries(problems: list[str]) -> dict[str, str]:
    """The distribution's own requirements and their versions; extras are optional."""
    found = {}
    for requirement in metadata.requires("corpus-cleanse") or []:
        match = _NAME.match(requirement)
        if match is None or "extra ==" in requirement or "python_version" in requirement:
            continue
        try:
            found[match[0]] = metadata.version(match[0])
        except metadata.PackageNotFoundError:
            found[match[0]] = "missing"
            problems.append(f"{match[0]} is missing: pip install '{requirement}'")
    return found


def _optional(distribution: str, module: str) -> str:
    if util.find_spec(module) is None:
        return "not installed"
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "installed"


def _probes() -> dict[str, str]:
    """The devices of every backend whose framework is installed, and what each would be used for."""
    found: dict[str, str] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        if util.find_spec(entry.name) is None:
            found[entry.name] = f"not installed: pip install 'corpus-cleanse[{entry.name}]'"
            continue
        try:
            devices = entry.load().describe_devices()
        except Exception as error:  # noqa: BLE001 - a broken framework is a finding of the doctor's, no failure
            found[entry.name] = f"cannot be loaded: {error}"
            continue
        for device in devices:
            there = f"available, {device.dtype}" if device.available else "not available"
            found[f"{entry.name} {device.name}"] = f"{there} ({device.detail})"
    return found


def _rules(problems: list[str]) -> str:
    try:
        loaded = load_packs()
    except PackError as error:
        problems.append(str(error))
        return "cannot be loaded"
    return f"{len(loaded.rules)} in {len(loaded.packs)} packs"
