"""What a measure is, what it is computed over, and the registry that rule packs look measures up in.

A measure turns a batch of texts into one number per text. It runs vectorised over the flat UTF-8 buffer of a
whole batch; places and excerpts are worked out later, by ``locate``, for the few texts that a rule flagged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.records import Role

Values = NDArray[np.float64]
Span = tuple[int, int]  # [start, end) in characters
T = TypeVar("T")


@dataclass(frozen=True)
class TextBatch:
    """Segments of many records, laid end to end.

    A record has zero or more segments (a document has one, a conversation one per turn). Those of one record
    are adjacent and in reading order. A null text in the data is a segment of length 0 with ``is_null`` set.
    """

    data: NDArray[np.uint8]  # (bytes,) valid UTF-8 of all segments, no separators
    offsets: NDArray[np.int64]  # (segments + 1,) byte offsets into data
    record: NDArray[np.int64]  # (segments,) index of the record in its batch, ascending
    role: NDArray[np.uint8]  # (segments,) values of Role
    supervised: NDArray[np.bool_]  # (segments,) whether a trainer computes loss on it
    is_null: NDArray[np.bool_]  # (segments,)
    n_records: int
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def text(self, segment: int) -> str:
        """The text of one segment, decoded."""
        start, end = self.offsets[segment], self.offsets[segment + 1]
        return self.data[start:end].tobytes().decode("utf-8")

    def once(self, key: str, make: Callable[[TextBatch], T]) -> T:
        """The result of ``make`` for this batch, computed at most once: how measures share one decode."""
        if key not in self.memo:
            self.memo[key] = make(self)
        value: T = self.memo[key]
        return value

    def arrow(self) -> pa.LargeStringArray:
        """The segments as an Arrow array over the same memory, for string kernels (null stays '')."""
        return self.once("arrow", _as_arrow)

    @classmethod
    def from_texts(cls, texts: list[str | None], role: Role = Role.TEXT, *, supervised: bool = True) -> TextBatch:
        """One record of one segment per text: for rule examples and tests."""
        encoded = [(t or "").encode("utf-8") for t in texts]
        lengths = np.fromiter((len(e) for e in encoded), np.int64, len(encoded))
        n = len(texts)
        return cls(
            data=np.frombuffer(b"".join(encoded), np.uint8),
            offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            record=np.arange(n, dtype=np.int64),
            role=np.full(n, role, np.uint8),
            supervised=np.full(n, supervised, np.bool_),
            is_null=np.fromiter((t is None for t in texts), np.bool_, n),
            n_records=n,
        )


def _as_arrow(batch: TextBatch) -> pa.LargeStringArray:
    offsets = np.ascontiguousarray(batch.offsets)
    return pa.LargeStringArray.from_buffers(
        len(batch), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(batch.data))
    )


@dataclass(frozen=True)
class Measure:
    """One number per text (segment), with what is needed to explain it.

    ``compute`` returns float64 of shape (segments,); NaN means "does not apply here" and crosses no limit.
    ``locate`` gives the spans in one flagged text that made the number large, at most a handful, or [].
    """

    name: str
    unit: str  # "characters", "share of characters", "nats per character", ...
    doc: str
    compute: Callable[[TextBatch], Values]
    locate: Callable[[str], list[Span]] | None = None


_REGISTRY: dict[str, Measure] = {}


def register(measure: Measure) -> Measure:
    """Makes a measure known to rule packs. Raises ValueError when another measure has the name."""
    known = _REGISTRY.get(measure.name)
    if known is not None and known.compute is not measure.compute:
        raise ValueError(f"two measures are called {measure.name!r}")
    _REGISTRY[measure.name] = measure
    return measure


def get(name: str) -> Measure:
    """The measure of that name. Raises KeyError, naming close matches, when there is none."""
    try:
        return _REGISTRY[name]
    except KeyError:
        from difflib import get_close_matches  # noqa: PLC0415 - only for the error message

        near = ", ".join(get_close_matches(name, _REGISTRY)) or "none like it"
        raise KeyError(f"no measure is called {name!r} (close: {near})") from None


def names() -> list[str]:
    """All registered names, sorted."""
    return sorted(_REGISTRY)
