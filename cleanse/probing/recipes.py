"""How a probe is asked for: auto, none, the name of a recipe, or the path of one; and options that override it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cleanse.errors import UsageError
from cleanse.probing.backends import GROUP
from cleanse.probing.settings import ProbeSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AUTO, NONE = "auto", "none"
HALF = "fp16"


def settle(probe: str, given: Mapping[str, Any]) -> tuple[ProbeSettings | None, str]:
    """The settings that ``--probe`` and the options beside it come to, and a line for the user, or "".

    Args:
        probe: "auto", "none", a recipe's name or path.
        given: options by the names of ``ProbeSettings``; None where the user said nothing.

    Raises UsageError for an unknown recipe or value. ``auto`` goes on without a probe, and says so, where its
    framework is not installed; a recipe or an option insists.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen.get("dtype") == HALF:
        # The probe itself never runs in half precision: that would break on the records it is to measure.
        del chosen["dtype"]
        chosen["fp16"] = True
    if probe == NONE:
        if chosen:
            raise UsageError(f"--probe none leaves nothing to do for {', '.join(sorted(chosen))}")
        return None, ""
    settings = ProbeSettings(**{**({} if probe == AUTO else _recipe(probe)), **chosen})
    if settings.model.startswith(("/", "./", "../", "~")) and not Path(settings.model).expanduser().exists():
        raise UsageError(f"there is no model at {settings.model}: expected a folder, a hub id, embedded or smollm2")
    if find_spec(settings.backend) is None:
        message = f"{settings.backend} is not installed: pip install 'corpus-cleanse[{settings.backend}]'"
        if probe == AUTO and not chosen:
            return None, f"suspects stay unproven, because the probe's {message}"
        raise UsageError(message)
    return settings, ""


def _recipe(name: str) -> dict[str, Any]:
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"there is no recipe {name}: expected a TOML file")
        return _checked(name, path.read_text("utf-8"))
    known = _installed()
    if name not in known:
        raise UsageError(
            f"no probe recipe is called {name!r}: expected auto, none, {', '.join(sorted(known))}, or a path"
        )
    return _checked(name, known[name])


def _installed() -> dict[str, str]:
    """Texts of the recipes beside the installed backends, by name."""
    found = {}
    for package in sorted({entry.value.partition(":")[0].rpartition(".")[0] for entry in entry_points(group=GROUP)}):
        folder = files(package) / "recipes"
        if folder.is_dir():
            for entry in folder.iterdir():
                if entry.name.endswith(".toml"):
                    found[entry.name.removesuffix(".toml")] = entry.read_text("utf-8")
    return found


def _checked(name: str, text: str) -> dict[str, Any]:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"recipe {name}: not valid TOML: {error}") from error
    known = {field.name for field in fields(ProbeSettings)}
    values.pop("summary", None)
    for key in values:
        if key not in known:
            raise UsageError(f"recipe {name}: no setting is called {key!r}; known are {', '.join(sorted(known))}")
    return values
