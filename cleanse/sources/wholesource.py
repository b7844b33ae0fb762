"""Events that only show when the facts of all shards of a source are put together."""

from __future__ import annotations

from collections.abc import Sequence

from cleanse.records import EventKind, ReadEvent
from cleanse.sources.model import ShardFacts
from cleanse.sources.planning import Plan
from cleanse.sources.shown import shown

LATE = 1_000
"""Records within which a column should show up: loaders settle the schema on the first chunk they read."""

WINDOW = 1_000
"""Rows that ``datasets`` and trainers put into one Arrow chunk (writer_batch_size)."""

OFFSET_LIMIT = (1 << 31) - 1  # bytes that 32-bit Arrow offsets can address


def source_events(plan: Plan, facts: Sequence[ShardFacts]) -> dict[int, list[ReadEvent]]:
    """Source index -> LATE_COLUMN and OFFSET_RISK events, whose rows count from the start of the source.

    ``facts`` are those of ``plan.shards``, in the same order (from either pass; columns are only noted in
    pass 1).
    """
    events: dict[int, list[ReadEvent]] = {source.index: [] for source in plan.sources}
    first: dict[tuple[int, str], int] = {}
    large: dict[tuple[int, str], list[tuple[int, int]]] = {}
    n_rows = dict.fromkeys(events, 0)
    for shard, known in zip(plan.shards, facts, strict=True):
        index = shard.source.index
        offset = n_rows[index]
        for name, row in known.first_rows.items():
            first[index, name] = min(first.get((index, name), offset + row), offset + row)
        for name, values in known.large_values.items():
            large.setdefault((index, name), []).extend((offset + row, size) for row, size in values)
        n_rows[index] += known.n_records
    for (index, name), row in sorted(first.items(), key=lambda item: (item[1], item[0])):
        if row >= LATE:
            events[index].append(_late(name, row))
    for (index, name), values in sorted(large.items()):
        events[index] += _risk(name, values)
    return events


def _late(name: str, row: int) -> ReadEvent:
    field = shown(name)
    detail = f"the column {field} first appears in record {row:,}: loaders that infer the schema earlier stop there"
    return ReadEvent(EventKind.LATE_COLUMN, row, detail, field=field, value=float(row))


def _risk(name: str, values: list[tuple[int, int]]) -> list[ReadEvent]:
    """One event for the worst ``WINDOW`` rows in sequence, if they overflow the offsets."""
    values = sorted(values)
    worst, worst_row, total, begin = 0, -1, 0, 0
    for row, size in values:
        total += size
        while values[begin][0] <= row - WINDOW:
            total -= values[begin][1]
            begin += 1
        if total > worst:
            worst, worst_row = total, values[begin][0]
    if worst <= OFFSET_LIMIT:
        return []
    field = shown(name)
    fitting = max(1, WINDOW * OFFSET_LIMIT // worst)
    detail = (
        f"{field}: {WINDOW:,} records from record {worst_row:,} hold {worst / 2**30:.1f} GiB, more than the 2 GiB of "
        f"32-bit Arrow offsets; use writer_batch_size <= {fitting} or large_string"
    )
    return [ReadEvent(EventKind.OFFSET_RISK, worst_row, detail, field=field, value=float(worst))]
