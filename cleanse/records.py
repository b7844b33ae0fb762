"""The field's terms as small types: actions, roles, findings, reader events, and their Arrow schemas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

import pyarrow as pa


class Action(str, Enum):
    """What a rule asks for, from weakest to strongest.

    ``note`` records only; ``repair`` mends the text in clean/ and keeps before and after in the finding;
    ``suspect`` needs a second, independent witness (the probe, or another test) before anything is moved;
    ``reject`` quarantines the record on this evidence alone.
    """

    NOTE = "note"
    REPAIR = "repair"
    SUSPECT = "suspect"
    REJECT = "reject"

    @property
    def severity(self) -> int:
        """0 for ``note`` up to 3 for ``reject``."""
        return _SEVERITY[self]


_SEVERITY = {Action.NOTE: 0, Action.REPAIR: 1, Action.SUSPECT: 2, Action.REJECT: 3}


class Role(IntEnum):
    """Who speaks in a segment. ``TEXT`` is a document without speakers."""

    TEXT = 0
    SYSTEM = 1
    USER = 2
    ASSISTANT = 3
    TOOL = 4
    CHOSEN = 5
    REJECTED = 6
    OTHER = 7  # a role name that no known format has


class Finding(NamedTuple):
    """One reason, for one place in one record. ``FINDINGS_SCHEMA`` has the same fields in the same order."""

    source: str  # path as the user gave it
    row: int  # 0-based record number in the source (JSONL: 0-based physical line); -1: the whole source
    rule: str
    action: str
    field: str  # "output", "messages[2].content"; "" for the whole record
    start: int | None  # [start, end) in characters of the field; None where no span applies
    end: int | None
    value: float | None  # what was measured
    limit: float | None  # the limit it crossed
    message: str
    excerpt: str


FINDINGS_SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("field", pa.string(), nullable=False),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
        pa.field("value", pa.float64()),
        pa.field("limit", pa.float64()),
        pa.field("message", pa.string(), nullable=False),
        pa.field("excerpt", pa.string(), nullable=False),
    ]
)

QUARANTINE_FIELDS = [
    pa.field("cleanse_id", pa.string()),
    pa.field("cleanse_source", pa.string()),
    pa.field("cleanse_row", pa.int64()),
    pa.field("cleanse_reasons", pa.list_(pa.string())),
    pa.field("cleanse_raw", pa.large_binary()),
]


class EventKind(str, Enum):
    """What a reader can notice about a record or a file. A rule with ``event = "<kind>"`` says what to do."""

    # records that cannot become a row: their bytes go to quarantine
    INVALID_UTF8 = "invalid_utf8"
    LONE_SURROGATE = "lone_surrogate"
    UNPARSEABLE = "unparseable"  # not JSON, not CSV: the parser's own words in the detail
    TRUNCATED = "truncated"  # the last line ends in the middle of a value
    NOT_AN_OBJECT = "not_an_object"  # JSON, but a number, string or list where a record was expected
    DUPLICATE_KEY = "duplicate_key"
    NUMBER_OUT_OF_RANGE = "number_out_of_range"
    WRONG_COLUMN_COUNT = "wrong_column_count"  # CSV row with too many or too few fields
    TOO_LARGE = "too_large"  # above --max-record-bytes: kept by reference (byte range, sha256), not by copy
    # records that become a row
    MIXED_TYPE = "mixed_type"  # this row's value is not of its column's usual type
    NOT_A_NUMBER = "not_a_number"  # NaN or Infinity literal
    NULL_LITERAL = "null_literal"  # CSV text such as None or NA that pandas and datasets read as null
    # about the whole source: row is -1, or the first row concerned
    BOM = "bom"
    UTF16 = "utf16"  # the file was UTF-16 and was transcoded
    BLANK_LINES = "blank_lines"
    LATE_COLUMN = "late_column"  # a column that is absent from the first records
    OFFSET_RISK = "offset_risk"  # 1,000 rows of a column exceed the 2 GiB that 32-bit Arrow offsets can hold
    EXPANSION = "expansion"  # a compressed file unfolds to more than 100 times its size
    READ_ERROR = "read_error"  # a damaged compressed or binary file: what follows this row is lost to any reader


STRAY_EVENTS = frozenset(
    {
        EventKind.INVALID_UTF8,
        EventKind.LONE_SURROGATE,
        EventKind.UNPARSEABLE,
        EventKind.TRUNCATED,
        EventKind.NOT_AN_OBJECT,
        EventKind.DUPLICATE_KEY,
        EventKind.NUMBER_OUT_OF_RANGE,
        EventKind.WRONG_COLUMN_COUNT,
        EventKind.TOO_LARGE,
    }
)
"""Events after which the record has no row of its own: it is quarantined whatever the packs say."""


@dataclass(frozen=True)
class ReadEvent:
    """Something a reader noticed. Turned into a finding by the rule pack that claims its kind."""

    kind: EventKind
    row: int  # shard-local record number; -1 for the source as a whole
    detail: str  # one sentence: what was found and where, safe to show (no raw control characters)
    field: str = ""
    start: int | None = None
    end: int | None = None
    value: float | None = None
    excerpt: str = ""


@dataclass(frozen=True)
class Stray:
    """A record that could not become a row. ``raw`` is None where it is kept by reference (see the event)."""

    row: int  # shard-local record number
    raw: bytes | None
    event: ReadEvent
