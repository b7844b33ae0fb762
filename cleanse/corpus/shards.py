"""All shards of a corpus as one: exchanges and records numbered through, read one shard at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus import arrays_file

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """One shard's features and where its exchanges and records stand in the corpus."""

    index: int
    arrays: dict[str, NDArray[Any]]
    exchanges: slice
    records: slice

    def offsets(self, side: str) -> Indices:
        """(exchanges + 1,) of ``side`` ("prompt" or "answer") into that side's tokens."""
        lengths = self.arrays[f"{side}_length"]
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


class Shards:
    """The feature files of a corpus in input order.

    Everything computed from them depends on that order only where it must (which of several equal records came
    first), never on where one file ends and the next begins.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        sizes = [self._sizes(path) for path in self.paths]
        self.exchange_starts = np.concatenate([[0], np.cumsum([s[0] for s in sizes])]).astype(np.int64)
        self.record_starts = np.concatenate([[0], np.cumsum([s[1] for s in sizes])]).astype(np.int64)
        self.n_prompt_tokens = sum(s[2] for s in sizes)

    @staticmethod
    def _sizes(path: Path) -> tuple[int, int, int]:
        arrays = arrays_file.read(path)
        return len(arrays["exchange_record"]), len(arrays["record_row"]), len(arrays["prompt_token"])

    @property
    def n_exchanges(self) -> int:
        """Exchanges of the whole corpus."""
        return int(self.exchange_starts[-1])

    @property
    def n_records(self) -> int:
        """Records of the whole corpus."""
        return int(self.record_starts[-1])

    def __iter__(self) -> Iterator[Shard]:
        for index in range(len(self.paths)):
            yield self[index]

    def __getitem__(self, index: int) -> Shard:
        return Shard(
            index,
            arrays_file.read(self.paths[index]),
            slice(int(self.exchange_starts[index]), int(self.exchange_starts[index + 1])),
            slice(int(self.record_starts[index]), int(self.record_starts[index + 1])),
        )

    def records_of(self, exchanges: Indices) -> Indices:
        """(exchanges,) the numbers of the records that these exchanges stand in."""
        records = np.empty(len(exchanges), np.int64)
        for shard, places, local in self.locate(exchanges):
            records[places] = shard.arrays["exchange_record"][local] + shard.records.start
        return records

    def gather(self, records: Indices, column: str) -> NDArray[Any]:
        """(records, ...) a column of these records."""
        owner = np.searchsorted(self.record_starts, records, side="right") - 1
        parts = [(o, self[int(o)].arrays[column]) for o in np.unique(owner)]
        template = parts[0][1] if parts else arrays_file.read(self.paths[0])[column]
        out = np.empty((len(records), *template.shape[1:]), template.dtype)
        for index, values in parts:
            mine = owner == index
            out[mine] = values[records[mine] - self.record_starts[index]]
        return out

    def locate(self, exchanges: Indices) -> Iterator[tuple[Shard, Indices, Indices]]:
        """The shards that hold these exchanges: shard, places in ``exchanges``, numbers within the shard."""
        owner = np.searchsorted(self.exchange_starts, exchanges, side="right") - 1
        for index in np.unique(owner).tolist():
            places = np.flatnonzero(owner == index)
            yield self[index], places, exchanges[places] - self.exchange_starts[index]
