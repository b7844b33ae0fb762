"""Reads an input in both passes, and puts shards and blocks back together."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cleanse.records import EventKind, ReadEvent, Stray
from cleanse.sources import Plan, ReadOptions, ShardFacts, Types, open_shard, plan, source_events


@dataclass
class Pass:
    """One pass over all shards; rows count from the start of each source, and keys are (source, row)."""

    records: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    strays: dict[tuple[int, int], Stray] = field(default_factory=dict)
    events: list[tuple[int, ReadEvent]] = field(default_factory=list)
    raw: dict[tuple[int, int], bytes] = field(default_factory=dict)
    facts: list[ShardFacts] = field(default_factory=list)


@dataclass
class Read:
    plan: Plan
    types: Types
    first: Pass
    second: Pass

    @property
    def schema(self) -> pa.Schema:
        return self.types.schema()

    def rows(self) -> list[dict[str, Any]]:
        """The records of pass 2, JSON text decoded."""
        return [self.second.records[key] for key in sorted(self.second.records)]

    def kinds(self) -> dict[int, EventKind]:
        """Row -> kind of the strays (of the first source)."""
        return {row: stray.event.kind for (source, row), stray in self.second.strays.items() if source == 0}

    def found(self, kind: EventKind) -> list[ReadEvent]:
        """Events of a kind, strays included, with rows as in the source."""
        merged = [event for _, event in self.second.events if event.kind is kind]
        return merged + [s.event for _, s in sorted(self.second.strays.items()) if s.event.kind is kind]


def write(path: Path, *lines: str | bytes, end: bytes = b"\n") -> Path:
    path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + end for line in lines))
    return path


def read(*inputs: Path | str, spool: Path | None = None, **options: Any) -> Read:
    chosen = ReadOptions(**options)
    made = plan([str(i) for i in inputs], chosen, spool or Path(str(inputs[0]) + ".spool"))
    first = _pass(made, chosen, None)
    types = Types()
    for facts in first.facts:
        types = types.merge(ShardFacts.from_json(json.loads(json.dumps(facts.to_json()))).types)
    second = _pass(made, chosen, types)
    assert strays_of(first) == strays_of(second)
    assert sorted(first.records) == sorted(second.records)
    assert first.raw == second.raw
    for one, other in zip(first.facts, second.facts, strict=True):
        assert (one.n_records, one.n_read, one.n_blank) == (other.n_records, other.n_read, other.n_blank)
    for index, events in source_events(made, first.facts).items():
        second.events += [(index, event) for event in events]
    second.events.sort(key=lambda item: (item[0], item[1].row, item[1].kind.value, item[1].detail))
    return Read(made, types, first, second)


def _pass(made: Plan, options: ReadOptions, types: Types | None) -> Pass:
    out = Pass()
    offsets = dict.fromkeys(range(len(made.sources)), 0)
    blank: dict[int, tuple[int, float]] = {}
    for shard in made.shards:
        source, offset = shard.source.index, offsets[shard.source.index]
        reader = open_shard(shard, options, types)
        for block in reader:
            block.batch.validate(full=True)
            if types is not None:
                assert block.batch.schema.equals(types.schema(), check_metadata=True)
            assert len(block.rows) == block.batch.num_rows
            keys = [(source, offset + int(row)) for row in block.rows]
            for key, record in zip(keys, block.batch.to_pylist(), strict=True):
                assert key not in out.records
                out.records[key] = record
            if block.raw is not None:
                out.raw.update({key: block.raw.line(i) for i, key in enumerate(keys)})
            for stray in block.strays:
                out.strays[source, offset + stray.row] = _moved(stray, offset)
            for event in block.events:
                if event.kind is EventKind.BLANK_LINES:
                    assert event.value is not None
                    row, count = blank.get(source, (offset + event.row, 0.0))
                    blank[source] = (row, count + event.value)
                else:
                    out.events.append((source, _event(event, offset)))
        facts = reader.facts
        assert facts.n_records == facts.n_read + facts.n_blank or shard.source.kind == "parquet"
        offsets[source] += facts.n_records
        out.facts.append(facts)
    for source, (row, count) in blank.items():
        out.events.append((source, ReadEvent(EventKind.BLANK_LINES, row, f"{count:.0f}", value=count)))
    return out


def _event(event: ReadEvent, offset: int) -> ReadEvent:
    row = event.row + offset if event.row >= 0 else -1
    return ReadEvent(event.kind, row, event.detail, event.field, event.start, event.end, event.value, event.excerpt)


def _moved(stray: Stray, offset: int) -> Stray:
    return Stray(stray.row + offset, stray.raw, _event(stray.event, offset))


def strays_of(one: Pass) -> dict[tuple[int, int], Stray]:
    return one.strays
