"""The texts of one block on their way to becoming records: which still count, and what was noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.records import EventKind, ReadEvent, Stray
from cleanse.sources.diagnose import Verdict, diagnose
from cleanse.sources.lines import Lines
from cleanse.sources.shown import excerpt

BOM = b"\xef\xbb\xbf"
SPACE = b" \t\r\n"
_OPEN, _CLOSE = ord("{"), ord("}")


class Candidates:
    """``good`` marks the texts that may still become rows; the others are blank or stand in ``strays``."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.good = np.ones(len(lines), np.bool_)
        self.starts = lines.starts  # moved behind a byte order mark, where there is one
        self.strays: list[Stray] = []
        self.events: list[ReadEvent] = []
        self.values: dict[int, dict[str, Any]] = {}  # records that only the standard parser reads (NaN)
        self.blank: list[NDArray[np.int64]] = []

    def text(self, i: int) -> bytes:
        """The bytes of one text, without a byte order mark."""
        return bytes(self.lines.data[self.starts[i] : self.lines.ends[i]])

    def index(self) -> NDArray[np.int64]:
        """The places of the texts that still count."""
        return np.flatnonzero(self.good)

    def row(self, i: int) -> int:
        """The shard-local record number of a text."""
        return self.lines.first_row + i

    def buffer(self) -> bytes | memoryview:
        """The block with everything blanked that is no good text."""
        lines = self.lines
        if self.starts is lines.starts and self.good.all():
            return lines.data
        data = bytearray(lines.data)
        for i in np.flatnonzero(~self.good | (self.starts != lines.starts)).tolist():
            start, stop = int(lines.starts[i]), int(self.starts[i] if self.good[i] else lines.ends[i])
            data[start:stop] = b" " * (stop - start)
        return memoryview(data)

    def judge(self, i: int) -> Verdict:
        """Asks what is wrong with a text, and sets it apart if something is."""
        verdict = diagnose(self.text(i), last=self.lines.at_end and i == len(self.lines) - 1)
        if verdict.kind is None:
            for path, literal in verdict.odd_numbers:
                detail = f"{path}: the literal {literal}, which is not JSON"
                self.events.append(ReadEvent(EventKind.NOT_A_NUMBER, self.row(i), detail, field=path))
            if verdict.odd_numbers:
                self.values[i] = verdict.value
        else:
            end = None if verdict.start is None else verdict.start + 1
            self.set_apart(
                i,
                ReadEvent(
                    verdict.kind,
                    self.row(i),
                    verdict.detail,
                    field=verdict.field_path,
                    start=verdict.start,
                    end=end,
                    excerpt=verdict.excerpt,
                ),
            )
        return verdict

    def set_apart(self, i: int, event: ReadEvent) -> None:
        """Makes a stray of a text, with its bytes as they came."""
        self.good[i] = False
        self.strays.append(Stray(self.row(i), self.lines.text(i), event))


def set_oversized_apart(block: Candidates) -> None:
    """Records above the size limit become strays by reference: their bytes are not here."""
    for big in block.lines.oversized:
        block.good[big.row - block.lines.first_row] = False
        place = f"bytes {big.start} to {big.stop} of the input, sha256 {big.sha256}"
        detail = f"a record of {big.stop - big.start:,} bytes: {place}"
        event = ReadEvent(
            EventKind.TOO_LARGE,
            big.row,
            detail,
            value=float(big.stop - big.start),
            excerpt=excerpt(big.head),
        )
        block.strays.append(Stray(big.row, None, event))


def check_shape(block: Candidates) -> None:
    """Blank texts are no records, and what is not ``{...}`` is judged on its own.

    After this, a newline between two texts cannot lie inside a value (a value that begins in one text ends in
    it, or that text is no JSON), so equal numbers of texts and of parsed rows mean that they belong together.
    """
    lines = block.lines
    data = np.frombuffer(lines.data, np.uint8)
    blank = block.good & (lines.starts == lines.ends)
    block.good &= ~blank
    at = block.index()
    odd = at[(data[lines.starts[at]] != _OPEN) | (data[lines.ends[at] - 1] != _CLOSE)]
    spaces: list[int] = []
    for i in odd.tolist():
        text = lines.text(i)
        if text.startswith(BOM):
            leave_out_bom(block, i)
        text = text.removeprefix(BOM).strip(SPACE)
        if not text:
            spaces.append(i)
            block.good[i] = False
        elif not (text.startswith(b"{") and text.endswith(b"}")):
            block.judge(i)
    for index in (np.flatnonzero(blank), np.array(spaces, np.int64)):
        if len(index):
            block.blank.append(index)


def check_utf8(block: Candidates) -> None:
    """Judges every text with bytes that are not UTF-8: a block parser lets them through."""
    if _is_utf8(memoryview(block.lines.data)):
        return
    for i in block.index().tolist():
        try:
            block.text(i).decode("utf-8")
        except UnicodeDecodeError:
            block.judge(i)


def leave_out_bom(block: Candidates, i: int) -> None:
    """Moves the start of a text behind its byte order mark, with an event."""
    lines = block.lines
    at_start = lines.base + int(lines.starts[i]) == 0
    if block.starts is lines.starts:
        block.starts = lines.starts.copy()
    block.starts[i] += len(BOM)
    where = "the file" if at_start else "this line"
    detail = f"a byte order mark (EF BB BF) at the start of {where}: left out"
    block.events.append(ReadEvent(EventKind.BOM, block.row(i), detail))


def _is_utf8(view: memoryview) -> bool:
    """Validated by Arrow: ten times as fast as decoding."""
    if len(view) >= 1 << 31:
        return False
    offsets = pa.py_buffer(np.array([0, len(view)], np.int32))
    try:
        pa.StringArray.from_buffers(1, offsets, pa.py_buffer(view)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
