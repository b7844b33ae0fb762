"""A stream of bytes as blocks of whole lines, in bounded memory whatever the lines are like."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MAX_LINES = 1 << 17
"""Lines handled together: bounds the index arrays for files of empty lines."""

_NEWLINE, _RETURN = 10, 13
HEAD = 640  # bytes of an oversized line that are kept, for its excerpt


@dataclass(frozen=True)
class Oversized:
    """A record too large to be held: where it lies in the (unpacked) input, and its digest."""

    row: int
    start: int  # bytes
    stop: int  # without the line ending
    sha256: str
    head: bytes


@dataclass
class Lines:
    """Texts that lie in one buffer. A text is one line here; other splitters make other cuts."""

    data: bytes | memoryview
    starts: NDArray[np.int64]  # (texts,) into data
    ends: NDArray[np.int64]  # (texts,) without the line ending
    first_row: int
    base: int = 0  # place of data[0] in the input
    at_end: bool = False  # the last text is cut off by the end of the input, not by a line ending
    n_bytes: int = 0
    oversized: list[Oversized] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, i: int) -> bytes:
        """The bytes of one text."""
        return bytes(self.data[self.starts[i] : self.ends[i]])


Read = Callable[[int], bytes]  # up to that many bytes; b"" at the end


def line_blocks(
    read: Read, *, block_bytes: int, max_record_bytes: int, start: int = 0, stop: int | None = None
) -> Iterator[Lines]:
    """Cuts what ``read`` gives into blocks of whole lines.

    ``start`` is the place of the first byte read; lines that begin at ``stop`` or later are left to the next
    shard. A line longer than ``max_record_bytes`` is digested as it streams by, and never held.
    """
    cutter = _Cutter(read, block_bytes, max_record_bytes, start, stop)
    return cutter.blocks()


def note_oversized(lines: Lines, limit: int) -> None:
    """Records above the limit that fitted a block are treated like those that did not."""
    for i in np.flatnonzero(lines.ends - lines.starts > limit).tolist():
        text = lines.text(i)
        start = lines.base + int(lines.starts[i])
        digest = hashlib.sha256(text).hexdigest()
        lines.oversized.append(Oversized(lines.first_row + i, start, start + len(text), digest, text[:HEAD]))


def skip_to_line(read: Read, limit: int) -> int | None:
    """Reads past the next line ending among the first ``limit`` bytes; how many bytes that took.

    None when no line begins there: it is all one line that an earlier shard owns. The caller seeks.
    """
    taken = 0
    while taken < limit:
        chunk = read(min(1 << 16, limit - taken))
        if not chunk:
            return None
        found = chunk.find(b"\n")
        if found >= 0:
            return taken + found + 1
        taken += len(chunk)
    return None


class _Cutter:
    """The state between two reads: what is left over, and where it lies."""

    def __init__(self, read: Read, block_bytes: int, limit: int, start: int, stop: int | None) -> None:
        self.read, self.block_bytes, self.limit, self.stop = read, block_bytes, limit, stop
        self.base = start  # place of the first byte not yet handed on
        self.row = 0

    def blocks(self) -> Iterator[Lines]:
        rest = b""
        while self.stop is None or self.base < self.stop:
            chunk = self.read(self._wanted(len(rest)))
            data = rest + chunk if rest else chunk
            if not chunk:
                if data:
                    yield from self._cut(data, at_end=not data.endswith(b"\n"))
                return
            whole = data.rfind(b"\n") + 1
            if whole == 0:
                if len(data) > self.limit + 1:  # one more for a carriage return
                    data = yield from self._stream(data)
                rest = data
                continue
            rest = data[whole:]
            yield from self._cut(data[:whole] if rest else data, at_end=False)

    def _wanted(self, held: int) -> int:
        """How much to read: to the end of the shard, then only to the end of its last line."""
        if self.stop is None or self.base + held < self.stop:
            room = self.block_bytes if self.stop is None else self.stop - self.base - held
            return min(self.block_bytes, room)
        return min(self.block_bytes, max(1 << 16, held))  # doubling: a long line is not copied too often

    def _cut(self, data: bytes, *, at_end: bool) -> Iterator[Lines]:
        """Blocks of at most ``MAX_LINES`` lines from whole lines (the last may lack its ending)."""
        array = np.frombuffer(data, np.uint8)
        stops = np.flatnonzero(array == _NEWLINE)
        ends = np.append(stops, len(data)) if at_end else stops
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        if self.stop is not None:
            mine = int(np.searchsorted(starts, self.stop - self.base))
            starts, ends = starts[:mine], ends[:mine]
        view = memoryview(data)
        for first in range(0, len(starts), MAX_LINES):
            some_starts, some_ends = starts[first : first + MAX_LINES], ends[first : first + MAX_LINES]
            last = first + MAX_LINES >= len(starts)
            origin = int(some_starts[0])
            until = min(int(some_ends[-1]) + 1, len(data))
            lines = Lines(
                data=data if len(starts) <= MAX_LINES and until == len(data) else view[origin:until],
                starts=some_starts - origin,
                ends=_without_returns(array, some_starts, some_ends) - origin,
                first_row=self.row,
                base=self.base + origin,
                at_end=at_end and last,
                n_bytes=until - origin,
            )
            note_oversized(lines, self.limit)
            self.row += len(some_starts)
            yield lines
        self.base += len(data)

    def _stream(self, data: bytes) -> Generator[Lines, None, bytes]:
        """Lets one oversized line pass through a digest; returns what was read beyond it."""
        digest, size, head = hashlib.sha256(), 0, b""
        held = b""  # a carriage return at the end belongs to the line ending, if that is what follows
        rest, ended = b"", False
        while True:
            found = data.find(b"\n")
            piece = held + (data if found < 0 else data[:found])
            if found >= 0:
                rest, ended = data[found + 1 :], True
            held = b"\r" if piece.endswith(b"\r") else b""
            piece = piece[:-1] if held else piece
            digest.update(piece)
            head = (head + piece)[:HEAD] if len(head) < HEAD else head
            size += len(piece)
            if ended:
                break
            data = self.read(self.block_bytes)
            if not data:
                digest.update(held)
                size += len(held)
                held = b""
                break
        taken = size + len(held) + ended
        big = Oversized(self.row, self.base, self.base + size, digest.hexdigest(), head)
        none = np.zeros(1, np.int64)
        yield Lines(b"", none, none.copy(), self.row, self.base, n_bytes=taken, oversized=[big])
        self.row += 1
        self.base += taken
        return rest


def _without_returns(array: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ends moved before a carriage return that belongs to the line ending."""
    last = array[np.maximum(ends - 1, 0)]
    return ends - ((last == _RETURN) & (ends > starts))
