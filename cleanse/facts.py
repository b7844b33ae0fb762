"""Between the passes: what all shards together say about the input."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from cleanse import distributions
from cleanse.inspection import event_from_json
from cleanse.records import EventKind, ReadEvent
from cleanse.sources import Plan, Shard, ShardFacts, Types, source_events


@dataclass(frozen=True)
class Corpus:
    """The merged facts of all shards."""

    types: Types
    offsets: tuple[int, ...]  # per shard: the number of its first record in its source
    n_read: int
    n_blank: int
    n_bytes: int
    file_events: tuple[tuple[ReadEvent, ...], ...]  # per shard: events about its file, rows counted in the source
    distributions: distributions.Counts  # lengths and the like, in bins


def merge(plan: Plan, committed: Iterable[dict[str, Any]]) -> Corpus:
    """Merges what pass 1 committed, shard by shard in the order of the plan."""
    types = Types()
    offsets: list[int] = []
    following: dict[int, int] = {}  # source index -> record number that its next shard begins with
    events: list[tuple[Shard, ReadEvent]] = []
    known: list[ShardFacts] = []
    counted: list[distributions.Counts] = []
    for shard, content in zip(plan.shards, committed, strict=True):
        facts = ShardFacts.from_json(content["facts"])
        offset = following.get(shard.source.index, 0)
        following[shard.source.index] = offset + facts.n_records
        offsets.append(offset)
        types = types.merge(facts.types)
        known.append(replace(facts, types=Types()))
        counted.append(content["distributions"])
        for values in content["events"]:
            event = event_from_json(values)
            events.append((shard, event if event.row < 0 else replace(event, row=event.row + offset)))
    for index, found in source_events(plan, known).items():
        shards = [shard for shard in plan.shards if shard.source.index == index] if found else []
        events += [(_home(shards, offsets, event.row), event) for event in found]
    return Corpus(
        types=types,
        offsets=tuple(offsets),
        n_read=sum(facts.n_read for facts in known),
        n_blank=sum(facts.n_blank for facts in known),
        n_bytes=sum(facts.n_bytes for facts in known),
        file_events=_per_shard(plan.shards, events),
        distributions=distributions.merge(counted),
    )


def _home(shards: list[Shard], offsets: list[int], row: int) -> Shard:
    """The shard of a source in which a row lies."""
    return max(shards, key=lambda shard: (offsets[shard.index] <= row, offsets[shard.index], shard.index))


def _per_shard(shards: tuple[Shard, ...], events: list[tuple[Shard, ReadEvent]]) -> tuple[tuple[ReadEvent, ...], ...]:
    """One event per source, kind and field, put with the shard in which it was first seen."""
    grouped: dict[tuple[int, EventKind, str], list[tuple[Shard, ReadEvent]]] = {}
    for shard, event in events:
        grouped.setdefault((shard.source.index, event.kind, event.field), []).append((shard, event))
    found: dict[int, list[ReadEvent]] = {shard.index: [] for shard in shards}
    for same in grouped.values():
        shard, first = same[0]
        if first.kind is EventKind.BLANK_LINES and len(same) > 1:
            n_blank = sum(int(event.value or 0) for _, event in same)
            first = replace(first, value=float(n_blank), detail=f"{n_blank:,} blank lines: no records")
        found[shard.index].append(first)
    return tuple(tuple(sorted(found[shard.index], key=lambda event: event.row)) for shard in shards)
