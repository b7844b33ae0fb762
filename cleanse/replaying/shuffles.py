"""The shuffles that trainers draw, bit for bit, without their frameworks.

Three libraries shuffle with the same generator (MT19937, 32-bit draws) in three ways: torch takes remainders,
libstdc++ before GCC 11 (which MindSpore is built with) divides and rejects, NumPy permutes. Each function here
was compared with the library itself; the tests repeat that wherever the library is installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Indices = NDArray[np.int64]

_N = 624
_M = 397
_MASK32 = 0xFFFFFFFF
_TORCH_SMALL = _MASK32 // 20  # from this many rows on, torch draws 64 bits and builds the permutation inside out


def _state(seed: int) -> NDArray[np.uint32]:
    """What ``std::mt19937(seed)`` and torch start from. (625,): 624 words, then the position in them."""
    legacy: Any = np.random.RandomState(seed & _MASK32).get_state(legacy=False)  # the generator of C++
    state = np.empty(_N + 1, dtype=np.uint32)
    state[:_N] = legacy["state"]["key"]
    state[_N] = _N
    return state


@njit(cache=True, nogil=True)
def _twist(state: NDArray[np.uint32]) -> None:
    for i in range(_N):
        y = (state[i] & np.uint32(0x80000000)) | (state[(i + 1) % _N] & np.uint32(0x7FFFFFFF))
        mixed = state[(i + _M) % _N] ^ (y >> np.uint32(1))
        if y & np.uint32(1):
            mixed ^= np.uint32(0x9908B0DF)
        state[i] = mixed
    state[_N] = 0


@njit(cache=True, nogil=True, inline="always")
def _draw(state: NDArray[np.uint32]) -> np.uint64:
    if state[_N] >= _N:
        _twist(state)
    y = state[state[_N]]
    state[_N] += 1
    y ^= y >> np.uint32(11)
    y ^= (y << np.uint32(7)) & np.uint32(0x9D2C5680)
    y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
    y ^= y >> np.uint32(18)
    drawn: np.uint64 = np.uint64(y)
    return drawn


@njit(cache=True, nogil=True)
def _randperm_small(n: int, state: NDArray[np.uint32]) -> Indices:
    order = np.arange(n)
    for i in range(n - 1):
        j = i + np.int64(_draw(state) % np.uint64(n - i))
        order[i], order[j] = order[j], order[i]
    return order


@njit(cache=True, nogil=True)
def _randperm_large(n: int, state: NDArray[np.uint32]) -> Indices:
    order = np.empty(n, dtype=np.int64)
    for i in range(n):
        high = _draw(state)
        z = np.int64(((high << np.uint64(32)) | _draw(state)) % np.uint64(i + 1))
        order[i] = order[z]  # z may be i itself: then the next line sets it
        order[z] = i
    return order


def torch_randperm(n: int, seed: int) -> Indices:
    """What ``torch.randperm(n, generator=g)`` gives on the CPU after ``g.manual_seed(seed)``.

    The rule is that of ATen's ``randperm_cpu``. Torch keeps the low 32 bits of a seed.

    Args:
        n: rows; the result takes 8 n bytes.
        seed: any int that ``manual_seed`` accepts, negative ones too.

    Returns:
        A permutation of 0..n-1, shape (n,).
    """
    state = _state(seed)
    return _randperm_small(n, state) if n < _TORCH_SMALL else _randperm_large(n, state)


@njit(cache=True, nogil=True)
def _uniform(state: NDArray[np.uint32], top: np.uint64) -> np.uint64:
    """A uniform integer in [0, top] as ``std::uniform_int_distribution`` drew it before GCC 11."""
    span = top + np.uint64(1)
    scaling = np.uint64(_MASK32) // span
    past = span * scaling
    draw = _draw(state)
    while draw >= past:
        draw = _draw(state)
    scaled: np.uint64 = draw // scaling
    return scaled


@njit(cache=True, nogil=True)
def _std_shuffle(v: Indices, state: NDArray[np.uint32]) -> None:
    n = len(v)
    if n < 2:  # noqa: PLR2004
        return
    i = 1
    if np.uint64(_MASK32) // np.uint64(n) >= np.uint64(n):
        # one draw serves two swaps while the product of their ranges fits in 32 bits
        if n % 2 == 0:
            j = np.int64(_uniform(state, np.uint64(1)))
            v[1], v[j] = v[j], v[1]
            i = 2
        while i < n:
            draw = _uniform(state, np.uint64(i + 1) * np.uint64(i + 2) - np.uint64(1))
            a = np.int64(draw // np.uint64(i + 2))
            b = np.int64(draw % np.uint64(i + 2))
            v[i], v[a] = v[a], v[i]
            v[i + 1], v[b] = v[b], v[i + 1]
            i += 2
        return
    for k in range(1, n):
        j = np.int64(_uniform(state, np.uint64(k)))
        v[k], v[j] = v[j], v[k]


class MindSporeShuffle:
    """MindSpore's sampler order over the epochs: one index vector, shuffled again in place with ``seed0 + epoch``.

    That makes epoch e a function of all epochs before it, so the vector is kept and moved forward; asking for an
    earlier epoch starts again. Verified with MindSpore 2.10 (``RandomSamplerRT``, ``DistributedSamplerRT``).
    """

    def __init__(self, n: int, seed0: int) -> None:
        self._n = n
        self._seed0 = seed0
        self._next = 0
        self._vector: Indices = np.arange(n)

    def epoch(self, epoch: int) -> Indices:
        """The order of ``epoch`` (from 0), shape (n,). A copy: later epochs do not change it."""
        if epoch < self._next - 1:
            self._vector = np.arange(self._n)
            self._next = 0
        while self._next <= epoch:
            _std_shuffle(self._vector, _state(self._seed0 + self._next))
            self._next += 1
        order: Indices = self._vector.copy()
        return order


def datasets_shuffle(n: int, seed: int) -> Indices:
    """Where ``datasets.Dataset.shuffle(seed=seed)`` takes its rows from, shape (n,): new row i was row ``[i]``."""
    return np.random.default_rng(seed).permutation(n)


def swift_dataset_shuffle(n: int, data_seed: int) -> Indices:
    """How ms-swift shuffles a single data set before training starts (``dataset_shuffle``, on by default), shape (n,).

    It holds for one data set without ``#`` sampling and without a validation split: each of those draws from the
    same random stream first.
    """
    stream = np.random.RandomState(data_seed)  # what ms-swift itself draws from
    return datasets_shuffle(n, int(stream.randint(0, np.iinfo(np.int32).max)))
