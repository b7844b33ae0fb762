"""Random projections of gradients: one number per dimension is u^T G v, summed over layers. NumPy only.

With independent random signs u and v the inner product of two sketches estimates the inner product of the gradients:
a matrix G is met by the rank-one sign matrix u v^T, so nothing of G's size is ever formed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Signs = NDArray[np.int8]


@dataclass
class SignVectors:
    """Signs per parameter, drawn from its name, so that every backend and every run projects alike."""

    dimensions: int
    seed: int = 0
    _cache: dict[str, tuple[Signs, Signs]] = field(default_factory=dict, repr=False)

    def pair(self, name: str, rows: int, columns: int) -> tuple[Signs, Signs]:
        """U (rows, dimensions) and v (columns, dimensions) of one parameter."""
        if name not in self._cache:
            rng = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
            u = rng.integers(0, 2, (rows, self.dimensions), dtype=np.int8) * np.int8(2) - np.int8(1)
            v = rng.integers(0, 2, (columns, self.dimensions), dtype=np.int8) * np.int8(2) - np.int8(1)
            self._cache[name] = (u, v)
        return self._cache[name]
