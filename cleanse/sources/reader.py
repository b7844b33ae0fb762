"""Opens one shard and gives its records block by block, in bounded memory, whatever the bytes are."""

from __future__ import annotations

from collections.abc import Iterator

from cleanse.blocks import RecordBlock
from cleanse.sources.model import ReadOptions, Shard, ShardFacts
from cleanse.sources.types import Types


class ShardReader:
    """An iterable of RecordBlocks, to be read once. ``facts`` are complete when it is exhausted."""

    def __init__(self, shard: Shard, options: ReadOptions, types: Types | None) -> None:
        self.shard, self.options, self.types = shard, options, types
        self.facts = ShardFacts()

    def __iter__(self) -> Iterator[RecordBlock]:
        kind = self.shard.source.kind
        if kind in ("parquet", "arrow"):
            from cleanse.sources.arrowfiles import read_arrow  # noqa: PLC0415 - each kind loads its own reader

            return read_arrow(self.shard, self.options, self.types, self.facts)
        if kind in ("csv", "tsv"):
            from cleanse.sources.csvfiles import read_csv  # noqa: PLC0415

            return read_csv(self.shard, self.options, self.types, self.facts)
        if kind == "text":
            from cleanse.sources.textfiles import read_text  # noqa: PLC0415

            return read_text(self.shard, self.options, self.types, self.facts)
        from cleanse.sources.jsonfiles import read_json  # noqa: PLC0415

        return read_json(self.shard, self.options, self.types, self.facts)


def open_shard(shard: Shard, options: ReadOptions, types: Types | None = None) -> ShardReader:
    """A reader over one shard.

    Pass 1, without ``types``: the schema is learnt, so later blocks may have more columns or wider types than
    earlier ones. Pass 2, with the merged types of all shards: every batch has exactly ``types.schema()``, and
    values of an unusual kind raise MIXED_TYPE events. Strays are the same in both.

    Raises:
        SourceError: while reading, where a file vanished or changed between the passes.
    """
    return ShardReader(shard, options, types)
