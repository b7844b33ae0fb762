"""Reads every common format, however broken, as shards and blocks of records.

``plan`` finds the files and cuts them, ``open_shard`` reads one part. Damage is never an error and never silent:
a record that cannot become a row is a stray with its bytes, and everything odd is an event.
"""

from __future__ import annotations

from cleanse.sources.errors import SourceError
from cleanse.sources.model import ReadOptions, Shard, ShardFacts, Source
from cleanse.sources.planning import Plan, plan
from cleanse.sources.reader import ShardReader, open_shard
from cleanse.sources.types import Types
from cleanse.sources.wholesource import source_events

__all__ = [
    "Plan",
    "ReadOptions",
    "Shard",
    "ShardFacts",
    "ShardReader",
    "Source",
    "SourceError",
    "Types",
    "open_shard",
    "plan",
    "source_events",
]
