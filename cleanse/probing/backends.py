"""What the core asks of a probe backend, and how one is found: by the entry-point group, never by an import."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any, Protocol

from cleanse.errors import CleanseError

GROUP = "cleanse.probes"


class Probe(Protocol):
    """A model on a device. ``Any`` stands for the backend's own record and evidence types (``cleanse.probes.types``)."""

    @property
    def info(self) -> Any: ...

    @property
    def has_baseline(self) -> bool: ...

    def set_baseline(self, controls: Sequence[Any]) -> None: ...

    def encode(self, segments: Sequence[tuple[str, bool]], *, max_tokens: int, windows: int) -> list[Any]: ...

    def gradients(self, records: Sequence[Any]) -> list[Any]: ...

    def losses(self, records: Sequence[Any]) -> list[Any]: ...

    def excerpt(self, record: Any, index: int) -> str: ...


def backend(name: str) -> Any:
    """The module of a backend. Raises CleanseError when it, or the framework under it, is not installed."""
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            try:
                return entry.load()
            except ImportError as error:
                extra = f"pip install 'corpus-cleanse[{name}]'"
                raise CleanseError(
                    f"the {name} probe cannot be loaded ({error}): {extra}, or use --probe none"
                ) from error
    known = ", ".join(sorted(entry.name for entry in entry_points(group=GROUP))) or "none"
    raise CleanseError(f"no probe backend is called {name!r}; installed: {known}")
