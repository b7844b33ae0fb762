"""Repairs by name: text in, mended text out. Rule packs name them; the packs' modules register them.

A repair must be idempotent and must never raise: whatever it cannot mend it returns as it came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Repair:
    """A named function from text to text."""

    name: str
    doc: str
    apply: Callable[[str], str]


_REGISTRY: dict[str, Repair] = {}


def register(repair: Repair) -> Repair:
    """Makes a repair known to rule packs. Raises ValueError when another repair has the name."""
    known = _REGISTRY.get(repair.name)
    if known is not None and known.apply is not repair.apply:
        raise ValueError(f"two repairs are called {repair.name!r}")
    _REGISTRY[repair.name] = repair
    return repair


def get(name: str) -> Repair:
    """The repair of that name. Raises KeyError, naming those there are, when there is none."""
    try:
        return _REGISTRY[name]
    except KeyError:
        raise KeyError(f"no repair is called {name!r} (known: {', '.join(names()) or 'none'})") from None


def names() -> list[str]:
    """All registered names, sorted."""
    return sorted(_REGISTRY)
