"""Between the passes: what all shards together say about the input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleanse.inspection import event_from_json
from cleanse.records import EventKind, ReadEvent
from cleanse.sources import Shard, ShardFacts, Types


@dataclass(frozen=True)
class Corpus:
    """The merged facts of all shards."""

    types: Types
    offsets: tuple[int, ...]  # per shard: the number of its first record in its source
    n_read: int
    read_of: tuple[int, ...]  # per shard: records read
    n_blank: int
    n_bytes: int
    file_events: tuple[tuple[ReadEvent, ...], ...]  # per shard: events about its file, rows counted in the source


def merge(shards: Sequence[Shard], committed: Iterable[dict[str, Any]]) -> Corpus:
    """Merges what pass 1 committed, shard by shard in the order of the plan."""
    types = Types()
    offsets: list[int] = []
    read_of: list[int] = []
    n_blank = n_bytes = 0
    following: dict[int, int] = {}  # source index -> record number that its next shard begins with
    events: list[tuple[Shard, ReadEvent]] = []
    for shard, content in zip(shards, committed, strict=True):
        facts = ShardFacts.from_json(content["facts"])
        offset = following.get(shard.source.index, 0)
        following[shard.source.index] = offset + facts.n_records
        offsets.append(offset)
        read_of.append(facts.n_read)
        n_blank += facts.n_blank
        n_bytes += facts.n_bytes
        types = types.merge(facts.types)
        for values in content["events"]:
            event = event_from_json(values)
            events.append((shard, event if event.row < 0 else replace(event, row=event.row + offset)))
    return Corpus(types, tuple(offsets), sum(read_of), tuple(read_of), n_blank, n_bytes, _per_shard(shards, events))


def _per_shard(shards: Sequence[Shard], events: list[tuple[Shard, ReadEvent]]) -> tuple[tuple[ReadEvent, ...], ...]:
    """One event per source, kind and field, put with the shard in which it was first seen."""
    grouped: dict[tuple[int, EventKind, str], list[tuple[Shard, ReadEvent]]] = {}
    for shard, event in events:
        grouped.setdefault((shard.source.index, event.kind, event.field), []).append((shard, event))
    found: dict[int, list[ReadEvent]] = {shard.index: [] for shard in shards}
    for same in grouped.values():
        shard, first = same[0]
        if first.kind is EventKind.BLANK_LINES and len(same) > 1:
            n_blank = sum(int(event.value or 0) for _, event in same)
            first = replace(
                first, value=float(n_blank), detail=f"{n_blank:,} blank lines, the first is line {first.row + 1:,}"
            )
        found[shard.index].append(first)
    return tuple(tuple(sorted(found[shard.index], key=lambda event: event.row)) for shard in shards)
