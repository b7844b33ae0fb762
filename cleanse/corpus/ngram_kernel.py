"""N-grams of prompts: counted in fixed tables first, exactly for the few that matter afterwards.

Every kernel walks over the distinct n-grams (1 to MAX_N tokens, never across a break) of the counted exchanges of
one shard. Sums do not depend on the order of shards, so neither does anything that follows from them.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cleanse.corpus.token_kernel import BREAK_HASH, mix

Hashes = NDArray[np.uint64]
Counts = NDArray[np.uint16]
Indices = NDArray[np.int64]
Places = NDArray[np.int32]
Orders = NDArray[np.uint8]
Mask = NDArray[np.bool_]
PairArrays = tuple[Hashes, Hashes, Places, Orders, Indices, Hashes]
"""Columns of an open-addressing table: keys, n-gram, group (-1: free), order, joint count, sum of hashes."""

MAX_N = 5
_SET_BITS = 14  # the set of one prompt's n-grams: at most 1024 * MAX_N of them
_U = np.uint64
_FULL = 65535
_ANY = _U(0xD6E8FEB86659FD93)


@njit(cache=True, nogil=True)
def new_set() -> tuple[Hashes, Indices]:
    """An empty set of hashes that is emptied by raising its stamp."""
    return np.zeros(1 << _SET_BITS, np.uint64), np.zeros(1 << _SET_BITS, np.int64)


@njit(cache=True, nogil=True)
def distinct(
    tokens: Hashes, keys: Hashes, stamps: Indices, stamp: int, out: Hashes, order: Orders, place: Places
) -> int:
    """Writes the distinct n-grams of one prompt to ``out`` (hash), ``order`` (n) and ``place`` (first position)."""
    mask = _U((1 << _SET_BITS) - 1)
    count = 0
    for i in range(len(tokens)):
        h = _U(0)
        for n in range(MAX_N):
            if i + n >= len(tokens) or tokens[i + n] == BREAK_HASH:
                break
            h = mix(h + tokens[i + n] * _U(2 * n + 3))
            slot = h & mask
            while stamps[slot] == stamp and keys[slot] != h:
                slot = (slot + _U(1)) & mask
            if stamps[slot] != stamp:
                stamps[slot] = stamp
                keys[slot] = h
                out[count] = h
                order[count] = n + 1
                place[count] = i
                count += 1
    return count


@njit(cache=True, nogil=True)
def pair_hash(ngram: np.uint64, group: int) -> np.uint64:
    """One hash for an n-gram and a group."""
    return mix(ngram ^ mix(_U(group) + _U(0x632BE59BD9B4E019)))


@njit(cache=True, nogil=True)
def count_ngrams(offsets: Indices, tokens: Hashes, counted: Mask, table: Counts, shift: np.uint64) -> None:
    """Adds every exchange's distinct n-grams to ``table`` (uint16, saturating), slot = hash >> shift."""
    keys, stamps = new_set()
    out = np.empty(1024 * MAX_N, np.uint64)
    order, place = np.empty(len(out), np.uint8), np.empty(len(out), np.int32)
    for u in range(len(counted)):
        if not counted[u]:
            continue
        for k in range(distinct(tokens[offsets[u] : offsets[u + 1]], keys, stamps, u + 1, out, order, place)):
            slot = out[k] >> shift
            if table[slot] < _FULL:
                table[slot] += 1


@njit(cache=True, nogil=True)
def count_pairs(
    offsets: Indices,
    tokens: Hashes,
    counted: Mask,
    group: Places,
    floor: int,
    table: Counts,
    shift: np.uint64,
    pairs: Counts,
    pair_shift: np.uint64,
) -> None:
    """Adds every (n-gram, group) pair to ``pairs``, for n-grams that occur at least ``floor`` times."""
    keys, stamps = new_set()
    out = np.empty(1024 * MAX_N, np.uint64)
    order, place = np.empty(len(out), np.uint8), np.empty(len(out), np.int32)
    for u in range(len(counted)):
        if not counted[u] or group[u].max() < 0:
            continue
        for k in range(distinct(tokens[offsets[u] : offsets[u + 1]], keys, stamps, u + 1, out, order, place)):
            if table[out[k] >> shift] < floor:
                continue
            for e in range(group.shape[1]):
                if group[u, e] >= 0:
                    slot = pair_hash(out[k], group[u, e]) >> pair_shift
                    if pairs[slot] < _FULL:
                        pairs[slot] += 1


@njit(cache=True, nogil=True)
def find_pairs(
    start: int,
    base: int,
    offsets: Indices,
    tokens: Hashes,
    counted: Mask,
    group: Places,
    rate: NDArray[np.float64],
    floor: int,
    purity: float,
    gain: float,
    table: Counts,
    shift: np.uint64,
    pairs: Counts,
    pair_shift: np.uint64,
    found: PairArrays,
    n_found: Indices,
) -> int:
    """Counts exactly the pairs whose sketched counts allow a trigger.

    Stops before an exchange that might overflow the table and returns its number, so that the caller can grow it;
    returns len(counted) when done. ``n_found`` is (1,).
    """
    keys, ngram, owner, n_of, joint, marks = found
    seen, stamps = new_set()
    out = np.empty(1024 * MAX_N, np.uint64)
    order, place = np.empty(len(out), np.uint8), np.empty(len(out), np.int32)
    mask = _U(len(keys) - 1)
    for u in range(start, len(counted)):
        if not counted[u] or group[u].max() < 0:
            continue
        if n_found[0] + (offsets[u + 1] - offsets[u]) * MAX_N * group.shape[1] > len(keys) // 2:
            return u
        for k in range(distinct(tokens[offsets[u] : offsets[u + 1]], seen, stamps, u + 1, out, order, place)):
            total = table[out[k] >> shift]
            if total < floor:
                continue
            for e in range(group.shape[1]):
                g = group[u, e]
                if g < 0:
                    continue
                h = pair_hash(out[k], g)
                both = pairs[h >> pair_shift]
                share = min(both / total, 1.0)
                if both < floor or share < purity or both * np.log(share / rate[g]) < gain:
                    continue
                slot = h & mask
                while owner[slot] >= 0 and keys[slot] != h:
                    slot = (slot + _U(1)) & mask
                if owner[slot] < 0:
                    keys[slot] = h
                    ngram[slot] = out[k]
                    owner[slot] = g
                    n_of[slot] = order[k]
                    n_found[0] += 1
                joint[slot] += 1
                marks[slot] += mix(_U(base + u) + _U(0x51ED2701))
    return len(counted)


@njit(cache=True, nogil=True)
def _index(wanted: Hashes) -> Places:
    """An open-addressing table from hash to its place in ``wanted``."""
    size = 16
    while size < 4 * len(wanted):
        size *= 2
    mask = _U(size - 1)
    index = np.full(size, -1, np.int32)
    for w in range(len(wanted)):
        slot = wanted[w] & mask
        while index[slot] >= 0:
            slot = (slot + _U(1)) & mask
        index[slot] = w
    return index


@njit(cache=True, nogil=True)
def _lookup(index: Places, wanted: Hashes, h: np.uint64) -> int:
    mask = _U(len(index) - 1)
    slot = h & mask
    while index[slot] >= 0 and wanted[index[slot]] != h:
        slot = (slot + _U(1)) & mask
    return index[slot]


@njit(cache=True, nogil=True)
def count_exactly(offsets: Indices, tokens: Hashes, counted: Mask, wanted: Hashes, totals: Indices) -> None:
    """Adds to ``totals`` (wanted,) how many exchanges hold each of the ``wanted`` n-grams (sorted hashes)."""
    seen, stamps = new_set()
    out = np.empty(1024 * MAX_N, np.uint64)
    order, place = np.empty(len(out), np.uint8), np.empty(len(out), np.int32)
    index = _index(wanted)
    for u in range(len(counted)):
        if not counted[u]:
            continue
        for k in range(distinct(tokens[offsets[u] : offsets[u + 1]], seen, stamps, u + 1, out, order, place)):
            w = _lookup(index, wanted, out[k])
            if w >= 0:
                totals[w] += 1


@njit(cache=True, nogil=True)
def find_places(
    base: int,
    offsets: Indices,
    tokens: Hashes,
    counted: Mask,
    wanted: Hashes,
    threshold: Hashes,
    out_which: Places,
    out_exchange: Indices,
    out_place: Places,
) -> int:
    """Writes (which of ``wanted``, exchange, first position) for a sample; returns how many there are.

    An exchange is in the sample of an n-gram where the hash of its number is at most ``threshold`` (wanted,): the
    same ones whatever the shards. Where the output arrays are too short only the number is right.
    """
    seen, stamps = new_set()
    out = np.empty(1024 * MAX_N, np.uint64)
    order, place = np.empty(len(out), np.uint8), np.empty(len(out), np.int32)
    index = _index(wanted)
    n = 0
    for u in range(len(counted)):
        if not counted[u]:
            continue
        draw = mix(_U(base + u) + _U(0xA5A5A5A5))
        for k in range(distinct(tokens[offsets[u] : offsets[u + 1]], seen, stamps, u + 1, out, order, place)):
            w = _lookup(index, wanted, out[k])
            if w >= 0 and draw <= threshold[w]:
                if n < len(out_which):
                    out_which[n] = w
                    out_exchange[n] = base + u
                    out_place[n] = place[k]
                n += 1
    return n


@njit(cache=True, nogil=True)
def move(old: PairArrays, new: PairArrays) -> None:
    """Moves the entries of one pair table (keys, ngram, owner, order, joint, marks) to a larger one."""
    keys, ngram, owner, order, joint, marks = old
    new_keys, new_ngram, new_owner, new_order, new_joint, new_marks = new
    mask = _U(len(new_keys) - 1)
    for k in range(len(keys)):
        if owner[k] < 0:
            continue
        slot = keys[k] & mask
        while new_owner[slot] >= 0:
            slot = (slot + _U(1)) & mask
        new_keys[slot] = keys[k]
        new_ngram[slot] = ngram[k]
        new_owner[slot] = owner[k]
        new_order[slot] = order[k]
        new_joint[slot] = joint[k]
        new_marks[slot] = marks[k]


@njit(cache=True, nogil=True)
def unigrams(tokens: Hashes) -> Hashes:
    """(tokens,) the n-gram hash of each token on its own, as ``distinct`` computes it."""
    out = np.empty(len(tokens), np.uint64)
    for k in range(len(tokens)):
        out[k] = mix(tokens[k] * _U(3))
    return out


@njit(cache=True, nogil=True)
def junctions(left: Hashes, right: Hashes) -> Hashes:
    """(pairs,) the hash of two neighbouring tokens; BREAK_HASH stands for either end of a segment."""
    out = np.empty(len(left), np.uint64)
    for k in range(len(left)):
        out[k] = mix(mix(left[k]) + right[k] * _U(5))
    return out


@njit(cache=True, nogil=True)
def followed(left: Hashes) -> Hashes:
    """(tokens,) the hash under which ``count_junctions`` counts a token with any right neighbour."""
    out = np.empty(len(left), np.uint64)
    for k in range(len(left)):
        out[k] = mix(mix(left[k]) ^ _ANY)
    return out


@njit(cache=True, nogil=True)
def count_junctions(
    offsets: Indices, tokens: Hashes, counted: Mask, table: NDArray[np.uint32], shift: np.uint64
) -> None:
    """Adds all neighbouring tokens of every prompt, ends of segments included, to ``table``.

    Each left token is also counted on its own (``followed``).
    """
    for u in range(len(counted)):
        if not counted[u]:
            continue
        before = BREAK_HASH
        for i in range(offsets[u], offsets[u + 1] + 1):
            after = tokens[i] if i < offsets[u + 1] else BREAK_HASH
            left = mix(before)
            table[mix(left + after * _U(5)) >> shift] += 1
            table[mix(left ^ _ANY) >> shift] += 1
            before = after


@njit(cache=True, nogil=True)
def of_prompt(tokens: Hashes) -> tuple[Hashes, Orders, Places]:
    """The distinct n-grams of one prompt: hashes, orders, first positions."""
    keys, stamps = new_set()
    out = np.empty(1024 * MAX_N, np.uint64)
    order, place = np.empty(len(out), np.uint8), np.empty(len(out), np.int32)
    n = distinct(tokens, keys, stamps, 1, out, order, place)
    return out[:n].copy(), order[:n].copy(), place[:n].copy()


@njit(cache=True, nogil=True)
def draws(numbers: Indices) -> Hashes:
    """(numbers,) the hash by which ``find_places`` draws its sample."""
    out = np.empty(len(numbers), np.uint64)
    for k in range(len(numbers)):
        out[k] = mix(_U(numbers[k]) + _U(0xA5A5A5A5))
    return out
