"""The distinct tokens of a shard: a number for each, its hash, and how it is written."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_MAX_TEXT = 64  # bytes of a token kept for display
_U = np.uint64


@njit(cache=True, nogil=True)
def _intern(  # noqa: PLR0917 - a kernel over parallel arrays
    hashes: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    values: NDArray[np.int32],
    n_known: int,
    ids: NDArray[np.uint32],
    first_seen: NDArray[np.int64],
) -> int:
    mask = _U(len(keys) - 1)
    n = n_known
    for k in range(len(hashes)):
        h = hashes[k]
        slot = h & mask
        while values[slot] >= 0 and keys[slot] != h:
            slot = (slot + _U(1)) & mask
        if values[slot] < 0:
            keys[slot] = h
            values[slot] = n
            first_seen[n - n_known] = k
            n += 1
        ids[k] = values[slot]
    return n


class Vocabulary:
    """Numbers tokens in the order they first appear."""

    def __init__(self) -> None:
        self._keys = np.zeros(1 << 16, np.uint64)
        self._values = np.full(1 << 16, -1, np.int32)
        self.hashes = np.zeros(0, np.uint64)  # (tokens,)
        self.kinds = np.zeros(0, np.uint8)  # (tokens,)
        self._texts: list[bytes] = []

    def __len__(self) -> int:
        return len(self._texts)

    def intern(
        self,
        data: NDArray[np.uint8],
        hashes: NDArray[np.uint64],
        kinds: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> NDArray[np.uint32]:
        """(tokens,) the number of each token; new ones are added with the text of their first appearance."""
        self._reserve(len(self) + len(hashes))
        ids = np.empty(len(hashes), np.uint32)
        first_seen = np.empty(len(hashes), np.int64)
        known = len(self)
        count = _intern(hashes, self._keys, self._values, known, ids, first_seen)
        new = first_seen[: count - known]
        if len(new):
            self.hashes = np.concatenate([self.hashes, hashes[new]])
            self.kinds = np.concatenate([self.kinds, kinds[new]])
        buffer = data.tobytes() if len(new) else b""
        spans = zip(starts[new].tolist(), np.minimum(ends[new], starts[new] + _MAX_TEXT).tolist(), strict=True)
        self._texts.extend(buffer[a:b] for a, b in spans)
        return ids

    def _reserve(self, n: int) -> None:
        if 2 * n <= len(self._keys):
            return
        size = 1 << (2 * n - 1).bit_length()
        self._keys, self._values = np.zeros(size, np.uint64), np.full(size, -1, np.int32)
        n_known = len(self.hashes)
        _intern(self.hashes, self._keys, self._values, 0, np.empty(n_known, np.uint32), np.empty(n_known, np.int64))

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """What a shard's file keeps: hashes, kinds, and the texts end to end."""
        lengths = np.fromiter(map(len, self._texts), np.int64, len(self))
        return {
            "vocabulary_hash": self.hashes,
            "vocabulary_kind": self.kinds,
            "vocabulary_offsets": np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            "vocabulary_text": np.frombuffer(b"".join(self._texts), np.uint8),
        }
