"""What a read is made of: options, sources, shards, and the facts a shard leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cleanse.sources.types import Types

KINDS = ("jsonl", "json", "csv", "tsv", "parquet", "arrow", "text")
"""How the bytes of one file are read. ``arrow`` is the IPC file or stream format (Feather too)."""

INPUT_FORMATS = ("auto", *KINDS, "hub")


@dataclass(frozen=True)
class ReadOptions:
    """What a reader may hold at once, and how inputs are cut. Results depend on ``max_record_bytes`` only."""

    max_record_bytes: int = 64 << 20  # longer records are kept by reference, never in memory
    block_bytes: int = 8 << 20  # read together, turned into one RecordBlock
    shard_bytes: int = 64 << 20  # unit of work and of resuming
    input_format: str = "auto"  # one of INPUT_FORMATS


@dataclass(frozen=True)
class Source:
    """One file to read. ``name`` is what findings call it, ``path`` where its bytes lie: also a URL, or a copy."""

    index: int
    name: str
    path: str
    kind: str  # one of KINDS
    compression: str | None  # gz, zst, bz2, xz or None
    n_bytes: int  # size of the file at ``path``
    transcoded_from: str = ""  # "utf-16-le", ... where ``path`` is a UTF-8 copy of another encoding
    expanded_from: int = 0  # compressed size in bytes, where ``path`` is an unpacked copy
    changed_ns: int | None = None  # when the file changed last, since 1970; None for a copy, or where nobody says


Cut = tuple[int, int, int]
"""Start, stop and offset of a shard, as it has them."""


@dataclass(frozen=True)
class Shard:
    """A part of a source that one worker reads from beginning to end.

    ``start`` and ``stop`` are bytes for line formats, row groups for Parquet, record batches for Arrow, and
    ``(0, n_bytes)`` for what cannot be cut (compressed streams, JSON arrays, CSV). ``offset`` is the byte at which
    an Arrow stream can be entered to read from ``start`` on; 0 where it must be read from its beginning.
    """

    index: int
    source: Source
    start: int
    stop: int
    offset: int = 0


@dataclass
class ShardFacts:
    """What was learnt from reading one shard to its end."""

    n_records: int = 0  # size of the shard's row numbering: JSONL counts every physical line
    n_read: int = 0  # records: rows of batches plus strays
    n_blank: int = 0  # blank lines: counted in n_records, not in n_read
    n_bytes: int = 0  # bytes of input, after unpacking
    types: Types = field(default_factory=Types)
    first_rows: dict[str, int] = field(default_factory=dict)  # column -> shard-local row that first has it
    large_values: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # column -> (row, bytes), ...

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``from_json`` gives equal facts back."""
        return {
            "n_records": self.n_records,
            "n_read": self.n_read,
            "n_blank": self.n_blank,
            "n_bytes": self.n_bytes,
            "types": self.types.to_json(),
            "first_rows": dict(self.first_rows),
            "large_values": {name: [list(pair) for pair in v] for name, v in self.large_values.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ShardFacts:
        """The facts that ``to_json`` described."""
        return cls(
            n_records=value["n_records"],
            n_read=value["n_read"],
            n_blank=value["n_blank"],
            n_bytes=value["n_bytes"],
            types=Types.from_json(value["types"]),
            first_rows=dict(value["first_rows"]),
            large_values={k: [(row, size) for row, size in v] for k, v in value["large_values"].items()},
        )
