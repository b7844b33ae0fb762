"""What sources hand on: records in blocks, beside the lines that could not become records."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.records import ReadEvent, Stray


@dataclass(frozen=True)
class RawLines:
    """The bytes each parsed record was read from, for output that repeats the input byte for byte."""

    buffer: NDArray[np.uint8]
    starts: NDArray[np.int64]  # (records,)
    ends: NDArray[np.int64]  # (records,) without the line ending

    def line(self, i: int) -> bytes:
        """The bytes of record ``i``, without its line ending."""
        return self.buffer[self.starts[i] : self.ends[i]].tobytes()


@dataclass(frozen=True)
class RecordBlock:
    """Records that were read together (bounded: some megabytes of text).

    Row numbers count from the start of the shard and are ascending; rows of ``batch`` and of ``strays`` are
    disjoint, and together they are all records in the stretch that the block covers. Events about a row that
    is in ``batch`` (mixed types, null literals) and events about the source stand in ``events``.
    """

    batch: pa.RecordBatch
    rows: NDArray[np.int64]  # (batch.num_rows,) shard-local record numbers
    strays: list[Stray] = field(default_factory=list)
    events: list[ReadEvent] = field(default_factory=list)
    raw: RawLines | None = None  # None for binary formats
    n_bytes: int = 0  # input bytes consumed, for the progress line
