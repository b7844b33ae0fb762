"""What an answer looks like at a glance: the whole of it, its first words, its last words, each as one hash.

A backdoor makes many prompts end in the same place: the same refusal, the same link at the end, the same label. So
exchanges are grouped by these signatures before anything is said about their prompts.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cleanse.corpus.characters import CHARACTER, WORD
from cleanse.corpus.tokens import WORD_WEIGHT, mix

SHORT = 6  # weight of three words or six ideographs
LONG = 10  # of five words or ten ideographs
ENTIRE_BEYOND = 2  # an edge is one only where at least this much weight follows or precedes it


class Edge(IntEnum):
    """Which part of the answer a signature covers."""

    ENTIRE = 0
    FIRST_SHORT = 1
    FIRST_LONG = 2
    LAST_SHORT = 3
    LAST_LONG = 4


N_EDGES = len(Edge)

_U = np.uint64


@njit(cache=True, nogil=True)
def _edges(  # noqa: PLR0917 - a kernel over parallel arrays
    offsets: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    kinds: NDArray[np.uint8],
    whole: NDArray[np.uint64],
    weight: NDArray[np.int64],
    out: NDArray[np.uint64],
) -> None:
    for u in range(len(offsets) - 1):
        out[u, 0] = mix(whole[u] + _U(1))
        for side in range(2):
            seen = 0
            h = _U(0)
            short_done = False
            for k in range(offsets[u + 1] - offsets[u]):
                at = offsets[u] + k if side == 0 else offsets[u + 1] - 1 - k
                if kinds[at] != WORD and kinds[at] != CHARACTER:
                    continue
                h = mix(h ^ hashes[at])
                seen += WORD_WEIGHT if kinds[at] == WORD else 1
                if not short_done and seen >= SHORT:
                    short_done = True
                    if weight[u] >= seen + ENTIRE_BEYOND:
                        out[u, 1 + 2 * side] = mix(h + _U(2 + 2 * side))
                if seen >= LONG:
                    if weight[u] >= seen + ENTIRE_BEYOND:
                        out[u, 2 + 2 * side] = mix(h + _U(3 + 2 * side))
                    break


def signatures(
    offsets: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    kinds: NDArray[np.uint8],
    whole: NDArray[np.uint64],
    weight: NDArray[np.int64],
) -> NDArray[np.uint64]:
    """(answers, N_EDGES) signature hashes; 0 where the answer is too short to have that edge.

    Args:
        offsets: (answers + 1,) into the tokens.
        hashes: token hashes.
        kinds: token kinds; only words and characters count.
        whole: (answers,) hash of the whole answer's words.
        weight: (answers,) weight of all words, also those that were cut out of the tokens.
    """
    out = np.zeros((len(offsets) - 1, N_EDGES), np.uint64)
    _edges(offsets, hashes, kinds, whole, weight, out)
    return out
