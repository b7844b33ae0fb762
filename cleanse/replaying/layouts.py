"""How trainers cut an epoch's order into micro-batches for each rank: closed forms, one per sampler.

A layout sees the epoch as a stream of positions 0, 1, 2, ...; positions at or beyond ``n`` are padding and repeat the
stream from its start. ``positions(rank, k)`` are the positions that rank feeds in its k-th forward pass of the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cleanse.replaying.shuffles import Indices


class Layout(Protocol):
    """The division of one epoch over ranks and forward passes."""

    @property
    def micro_batches(self) -> int:
        """Forward passes of each rank in an epoch."""
        ...

    def positions(self, rank: int, k: int) -> Indices:
        """Positions in the epoch's order that ``rank`` feeds in forward pass ``k``, all within 0..n-1."""
        ...


@dataclass(frozen=True)
class Rounds:
    """accelerate's ``BatchSamplerShard`` (and, with one rank, torch's ``BatchSampler``).

    Without ``split``: consecutive batches go to ranks 0, 1, ..., W-1, one round per forward pass. With ``split`` every
    batch is cut into W pieces. An incomplete last round is filled from the start of the epoch (``even``), handed out
    as it is, or dropped.
    """

    n: int
    batch: int  # rows that one rank feeds per forward pass; with ``split`` the rows of all ranks together
    ranks: int = 1
    drop_last: bool = False
    even: bool = True
    split: bool = False

    def __post_init__(self) -> None:
        if self.split and self.batch % self.ranks:
            raise ValueError(f"split_batches needs a batch that divides over the ranks: {self.batch} over {self.ranks}")

    @property
    def _round(self) -> int:
        return self.batch if self.split else self.batch * self.ranks

    @property
    def micro_batches(self) -> int:
        """Rounds in an epoch: only full ones with ``drop_last``."""
        return self.n // self._round if self.drop_last else -(-self.n // self._round)

    def positions(self, rank: int, k: int) -> Indices:
        """See ``Layout``. The padding repeats at most the first round, as accelerate's does."""
        each = self._round // self.ranks
        start = k * self._round + rank * each
        taken = np.arange(start, start + each, dtype=np.int64)
        over = taken >= self.n
        if not over.any():
            return taken
        if self.ranks == 1 or not self.even:
            return taken[~over]
        return np.where(over, (taken - self.n) % min(self.n, self._round), taken)


@dataclass(frozen=True)
class Strided:
    """Rank r takes every W-th position from r on, then cuts its own list into batches.

    torch's ``DistributedSampler``, MindSpore's sharded samplers and ms-swift from 3.12 on. With ``pad`` the stream is
    extended from its start to a multiple of W, else shortened to one.
    """

    n: int
    batch: int
    ranks: int = 1
    pad: bool = True
    drop_last: bool = False  # of the loader: a last batch that is not full

    @property
    def share(self) -> int:
        """Rows of each rank in an epoch."""
        return -(-self.n // self.ranks) if self.pad else self.n // self.ranks

    @property
    def micro_batches(self) -> int:
        """Batches of each rank in an epoch."""
        return self.share // self.batch if self.drop_last else -(-self.share // self.batch)

    def positions(self, rank: int, k: int) -> Indices:
        """See ``Layout``."""
        own = np.arange(k * self.batch, min((k + 1) * self.batch, self.share), dtype=np.int64)
        return (own * self.ranks + rank) % self.n


@dataclass(frozen=True)
class Blocks:
    """Rank r takes the r-th block of consecutive positions: ms-swift from 3.3 to 3.11. The rest is lost."""

    n: int
    batch: int
    ranks: int = 1
    drop_last: bool = False

    @property
    def share(self) -> int:
        """Rows of each rank in an epoch."""
        return self.n // self.ranks

    @property
    def micro_batches(self) -> int:
        """Batches of each rank in an epoch."""
        return self.share // self.batch if self.drop_last else -(-self.share // self.batch)

    def positions(self, rank: int, k: int) -> Indices:
        """See ``Layout``."""
        start = rank * self.share
        return np.arange(start + k * self.batch, start + min((k + 1) * self.batch, self.share), dtype=np.int64)
