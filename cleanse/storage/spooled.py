"""Inputs that a run had to copy, where the workers can read them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cleanse.sources import Plan
from cleanse.storage.files import Files
from cleanse.storage.filesystem import joined


def shared(plan: Plan, files: Files, out: Path, url: str | None) -> Plan:
    """The plan with sources that lie in the run's own folder sent to the output's place, and read from there."""
    if url is None:
        return plan
    moved = {}
    for source in plan.sources:
        path = Path(source.path)
        if path.is_relative_to(out):
            if not files.has(path):
                files.send(path)
            moved[source.index] = replace(source, path=joined(url, path.relative_to(out).as_posix()))
    shards = (
        replace(shard, source=moved[shard.source.index]) if shard.source.index in moved else shard
        for shard in plan.shards
    )
    sources = (moved.get(source.index, source) for source in plan.sources)
    return Plan(tuple(sources), tuple(shards), plan.options)
