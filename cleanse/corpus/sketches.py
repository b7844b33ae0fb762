"""MinHash digests for near duplicates, by rensa, and the bands that bring likely pairs together."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cleanse.corpus.characters import CHARACTER, WORD
from cleanse.corpus.tokens import mix

N_PERMUTATIONS = 64
N_BANDS = 16  # of four rows: two records of Jaccard similarity 0.8 meet with probability 1 - (1 - 0.8^4)^16 = 0.9998
SEED = 1
MIN_SHINGLES = 8  # shorter records have too few shingles for a similarity to mean anything: exact only
_WORDS, _CHARACTERS = 3, 5  # tokens per shingle
_U = np.uint64


@njit(cache=True, nogil=True)
def _shingles(
    offsets: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    kinds: NDArray[np.uint8],
    out_offsets: NDArray[np.int64],
    out: NDArray[np.uint64],
) -> int:
    n = 0
    for r in range(len(offsets) - 1):
        words = 0
        characters = 0
        for k in range(offsets[r], offsets[r + 1]):
            words += kinds[k] == WORD
            characters += kinds[k] == CHARACTER
        size = _WORDS if words >= characters else _CHARACTERS
        for k in range(offsets[r], offsets[r + 1] - size + 1):
            h = _U(size)
            for j in range(size):
                h = mix(h ^ hashes[k + j])
            out[n] = h
            n += 1
        out_offsets[r + 1] = n
    return n


@njit(cache=True, nogil=True)
def _bands(digests: NDArray[np.uint32], enough: NDArray[np.bool_], out: NDArray[np.uint64]) -> None:
    rows = digests.shape[1] // out.shape[1]
    for r in range(len(digests)):
        for b in range(out.shape[1]):
            h = _U(b + 1)
            for k in range(rows):
                h = mix(h ^ _U(digests[r, b * rows + k]))
            out[r, b] = h if enough[r] else _U(0)


def sketch(
    offsets: NDArray[np.int64], hashes: NDArray[np.uint64], kinds: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """Digests and bands of records given as token streams.

    Args:
        offsets: (records + 1,) into the tokens.
        hashes: token hashes.
        kinds: token kinds: mostly words give shingles of three tokens, mostly characters of five.

    Returns:
        (records, N_PERMUTATIONS) the low byte of each MinHash value, enough to estimate similarity (Li and König,
        "b-Bit minwise hashing", WWW 2010); (records, N_BANDS) band hashes, 0 for records of too few shingles.
    """
    from rensa import RMinHash  # noqa: PLC0415 - native code that only this stage needs

    n = len(offsets) - 1
    shingle_offsets, shingles = np.zeros(n + 1, np.int64), np.empty(len(hashes), np.uint64)
    used = _shingles(offsets, hashes, kinds, shingle_offsets, shingles)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        shingles[:used], shingle_offsets.astype(np.uint64), N_PERMUTATIONS, SEED
    )
    digests = np.array(matrix.to_rows(), np.uint32).reshape(n, N_PERMUTATIONS)
    bands = np.empty((n, N_BANDS), np.uint64)
    _bands(digests, np.diff(shingle_offsets) >= MIN_SHINGLES, bands)
    return digests.astype(np.uint8), bands
