"""``cleanse models``: models that come from the Python package index and are kept in the cache."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

from cleanse.errors import CleanseError, UsageError

GROUP = "cleanse.models"


def fetch_model(name: str) -> Path:
    """The folder of a model, fetched first if need be.

    Raises UsageError for a name that nobody registered, CleanseError where it cannot be fetched or converted.
    """
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in known:
        raise UsageError(f"no model to fetch is called {name!r}: expected {', '.join(sorted(known)) or 'none known'}")
    try:
        fetch = known[name].load()
    except ImportError as error:
        message = f"{name} cannot be fetched ({error}): pip install 'corpus-cleanse[torch]'"
        raise CleanseError(message) from error
    try:
        return Path(fetch())
    except Exception as error:
        raise CleanseError(f"{name} could not be fetched: {error}") from error
