"""What the core asks of a probe backend, and how one is found: by the entry-point group, never by an import."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any, Protocol

from cleanse.errors import CleanseError

GROUP = "cleanse.probes"


class Probe(Protocol):
    """A model on a device. ``Any`` stands for the backend's record and evidence types (``cleanse.probes.types``)."""

    @property
    def info(self) -> Any:
        """Model, backend, device, dtype, parameters, method, notes; ``as_dict()`` gives plain values."""

    @property
    def tokenizer(self) -> Any:
        """The model's ``tokenizers.Tokenizer``."""

    @property
    def has_baseline(self) -> bool:
        """Whether the model came with a unigram baseline of its tokenizer."""

    def set_baseline(self, controls: Sequence[Any]) -> None:
        """Estimates the unigram baseline from encoded records."""

    def encode(self, segments: Sequence[tuple[str, bool]], *, max_tokens: int, windows: int) -> list[Any]:
        """(text, supervised) segments of one record as up to ``windows`` token windows."""

    def gradients(self, records: Sequence[Any], options: Any = None) -> list[Any]:
        """Losses and exact gradient norms, one evidence per record, in order; ``options`` may ask for more."""

    def losses(self, records: Sequence[Any], options: Any = None) -> list[Any]:
        """Losses alone, from a forward pass; ``options`` may ask for those of every token."""

    def reordered(self, record: Any) -> Any | None:
        """The record with its supervised words in another order; None where it has too few of them."""


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
