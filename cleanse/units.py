"""The unit of work: shards that one worker reads in one go and commits together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleanse.sources import Shard

_MOST_SHARDS = 256  # a folder of a million tiny files must still show progress and resume in the middle


@dataclass(frozen=True)
class Unit:
    """Consecutive shards of the plan. A large file is many units; many small files are one."""

    index: int
    shards: tuple[Shard, ...]

    def __str__(self) -> str:
        first = self.shards[0]
        if len(self.shards) == 1:
            return f"shard {first.index} of {first.source.name} ({first.start}-{first.stop})"
        return f"shards {first.index}-{self.shards[-1].index} ({first.source.name} and following)"


def group(shards: Sequence[Shard], shard_bytes: int) -> list[Unit]:
    """Cuts the plan into units of about ``shard_bytes`` of input each.

    Depends only on the plan, so that the output does not depend on the workers.
    """
    per_source: dict[int, int] = {}
    for shard in shards:
        per_source[shard.source.index] = per_source.get(shard.source.index, 0) + 1
    units: list[Unit] = []
    pending: list[Shard] = []
    pending_bytes = 0
    for shard in shards:
        n_bytes = shard.source.n_bytes // per_source[shard.source.index]  # start and stop may be row groups
        if pending and (pending_bytes + n_bytes > shard_bytes or len(pending) >= _MOST_SHARDS):
            units.append(Unit(len(units), tuple(pending)))
            pending, pending_bytes = [], 0
        pending.append(shard)
        pending_bytes += n_bytes
    if pending:
        units.append(Unit(len(units), tuple(pending)))
    return units
