"""Events about a shard or source as a whole, raised when its end has been reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cleanse.blocks import RecordBlock
from cleanse.records import EventKind, ReadEvent
from cleanse.sources.model import Shard
from cleanse.sources.streams import Stream

_RATIO = 100
"""Unfolding of a compressed file worth a word: text packs 3 to 10 times, long repetitions more."""

_SMALL = 16 << 20  # bytes: what unfolds to less does no harm


@dataclass
class Blanks:
    """Where blank lines were met: one event per shard, since there may be millions."""

    first: int = -1
    count: int = 0

    def add(self, first_row: int, count: int) -> None:
        """Adds some, of which ``first_row`` is the first."""
        if count and (self.first < 0 or first_row < self.first):
            self.first = first_row
        self.count += count

    def events(self) -> Iterator[ReadEvent]:
        """The event, if there were any."""
        if self.count:
            lines = "1 blank line" if self.count == 1 else f"{self.count:,} blank lines"
            yield ReadEvent(EventKind.BLANK_LINES, self.first, f"{lines}: no records", value=float(self.count))


def stream_events(shard: Shard, stream: Stream, next_row: int) -> Iterator[ReadEvent]:
    """What the bytes themselves had: damage, bombs, another encoding."""
    source = shard.source
    if stream.error:
        detail = f"{stream.error}; what follows is lost to any reader"
        yield ReadEvent(EventKind.READ_ERROR, next_row, detail)
    if source.compression:
        yield from expansion(source.n_bytes, getattr(stream, "n_out", 0))
    elif shard.start == 0:
        yield from expansion(source.expanded_from, source.n_bytes)
    if source.transcoded_from and shard.start == 0:
        detail = f"the file is {source.transcoded_from.upper()}: read as if it were UTF-8"
        yield ReadEvent(EventKind.UTF16, -1, detail)


def expansion(packed: int, unpacked: int) -> Iterator[ReadEvent]:
    """The event of a compressed file that unfolds far more than text does (``packed`` 0: not compressed)."""
    if packed and unpacked > max(_SMALL, _RATIO * packed):
        ratio = unpacked / packed
        detail = f"{packed:,} compressed bytes unfold to {unpacked:,} ({ratio:,.0f} times as many)"
        yield ReadEvent(EventKind.EXPANSION, -1, detail, value=ratio)


def closing_block(batch: pa.RecordBatch, events: list[ReadEvent]) -> Iterator[RecordBlock]:
    """A last block without records for events of the whole shard; none where there are none."""
    if events:
        yield RecordBlock(batch=batch, rows=np.zeros(0, np.int64), events=events)
