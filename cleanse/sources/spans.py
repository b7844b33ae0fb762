"""Blocks of records from a kernel that knows where records end: JSON values, or CSV rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleanse.sources.lines import HEAD, MAX_LINES, Lines, Oversized, Read, note_oversized
from cleanse.sources.spans_kernel import FIELDS, MODE, N_SLOTS, QUOTED, SINCE

Kernel = Callable[..., Any]
Places = NDArray[np.int64]
_FULL = -2  # a state's SINCE at or below this: the arrays were full, and the kernel stopped at _FULL - SINCE


class SpanCutter:
    """Reads a stream and cuts it. ``fields`` and ``open_quote`` belong to the block yielded last."""

    def __init__(
        self, read: Read, kernel: Kernel, extra: int, *, block_bytes: int, max_record_bytes: int, start: int = 0
    ) -> None:
        self.read, self.kernel, self.extra = read, kernel, np.int64(extra)
        self.block_bytes, self.limit = block_bytes, max_record_bytes
        self.state = np.zeros(N_SLOTS, np.int64)
        self.state[SINCE] = -1
        self.row = 0
        self.base = start  # place of the next byte in the input
        self.pending = self.state
        self.fields: Places = np.zeros(0, np.int64)
        self.open_quote = False

    def blocks(self) -> Iterator[Lines]:
        """All records in order, in blocks of whole records; the last may be cut off by the end of the input."""
        rest = b""
        while True:
            chunk = self.read(self.block_bytes)
            data = rest + chunk if rest else chunk
            rest = yield from self._cut(data, at_end=not chunk)
            if not chunk:
                return
            if len(rest) > self.limit:
                rest = yield from self._stream(rest)

    def _cut(self, data: bytes, *, at_end: bool) -> Generator[Lines, None, bytes]:
        """Yields the whole records in a buffer that begins between two; returns the bytes of an open one."""
        array = np.frombuffer(data, np.uint8)
        begin = 0
        while True:
            starts, ends, fields = (np.empty(MAX_LINES + 1, np.int64) for _ in range(3))
            room = slice(0, MAX_LINES)  # one more is kept for a record that the end of the input cuts off
            n = self.kernel(array[begin:], self.state, self.extra, starts[room], ends[room], fields[room])
            since = int(self.state[SINCE])
            full, is_open = since <= _FULL, since >= 0
            cut_off = at_end and is_open
            if cut_off:
                starts[n], ends[n], fields[n] = since, len(data) - begin, self.state[FIELDS]
                n += 1
            unread = begin + since if is_open and not at_end else len(data)
            stop = begin + _FULL - since if full else unread
            if stop > begin:
                self.fields = fields[:n]
                self.open_quote = cut_off and int(self.state[MODE]) == QUOTED
                yield self._lines(data, (begin, stop), starts[:n], ends[:n], at_end=cut_off)
            if not full:
                break
            begin, self.state[SINCE] = stop, -1
        if not is_open or at_end:
            return b""
        # The open record is read again from its start, together with what follows.
        self.pending = self.state.copy()
        self.state[MODE], self.state[SINCE] = 0, -1
        return data[stop:]

    def _lines(self, data: bytes, cut: tuple[int, int], starts: Places, ends: Places, *, at_end: bool) -> Lines:
        lines = Lines(
            data=memoryview(data)[slice(*cut)],
            starts=starts,
            ends=ends,
            first_row=self.row,
            base=self.base,
            at_end=at_end,
            n_bytes=cut[1] - cut[0],
        )
        note_oversized(lines, self.limit)
        self.row += len(starts)
        self.base += lines.n_bytes
        return lines

    def _stream(self, data: bytes) -> Generator[Lines, None, bytes]:
        """Lets one oversized record pass through a digest; returns what was read beyond it."""
        digest, head, size = hashlib.sha256(data), data[:HEAD], len(data)
        self.state = self.pending
        self.state[SINCE] = 0
        one = [np.empty(1, np.int64) for _ in range(3)]
        rest, taken = b"", len(data)
        while chunk := self.read(self.block_bytes):
            if self.kernel(np.frombuffer(chunk, np.uint8), self.state, self.extra, *one):
                end, until = int(one[1][0]), _FULL - int(self.state[SINCE])
                digest.update(chunk[:end])
                head = (head + chunk[:end])[:HEAD]
                size, taken, rest = size + end, taken + until, chunk[until:]
                break
            digest.update(chunk)
            head = (head + chunk)[:HEAD] if len(head) < HEAD else head
            size, taken = size + len(chunk), taken + len(chunk)
        self.state[SINCE] = -1
        self.fields, self.open_quote = np.zeros(1, np.int64), False
        big = Oversized(self.row, self.base, self.base + size, digest.hexdigest(), head)
        none = np.zeros(1, np.int64)
        yield Lines(b"", none, none.copy(), self.row, self.base, n_bytes=taken, oversized=[big])
        self.row += 1
        self.base += taken
        return rest
