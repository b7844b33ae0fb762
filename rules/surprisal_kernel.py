"""Surprisal of characters under a packaged 3-gram table: what noise has much of, and language little.

A score is -ln p(c | a, b) in eighths of a nat, with "stupid backoff" (Brants et al. 2007): a 3-gram that the
table does not hold costs BACKOFF more than the 2-gram, and so on down to a floor per script. Probabilities are
within the script of c, so that a change of script costs nothing and nats compare across scripts.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from . import classes as c
from .profile_kernel import decode

SUM, SCORED, NOISE, PEAK = 0, 1, 2, 3
N_COLUMNS = 4

LONG = 512  # bytes that must be left for a block to be passed over
PASSED = 128  # characters passed over after a quiet block
BLOCK = 64  # characters over which the mean is compared with the script's ceiling
EIGHTHS = 8  # steps per nat
BACKOFF = 7  # 0.4 as a probability: 0.92 nats
PROBES = 8  # slots looked at for one key
VALUE_BITS = 7
_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xC2B2AE3D27D4EB4F)
_C = np.uint64(0x165667B19E3779F9)
NOTHING = 0x1FFFFF  # stands for "no character" in keys of 2-grams and 1-grams


@njit(cache=True, nogil=True, inline="always")
def key_hash(a: int, b: int, char: int) -> np.uint64:
    """64 mixed bits of a 3-gram; ``NOTHING`` for a (and b) makes it a 2-gram (1-gram)."""
    h = np.uint64(a) * _A + np.uint64(b) * _B + np.uint64(char) * _C
    h ^= h >> np.uint64(29)
    mixed: np.uint64 = h * _A
    return mixed


@njit(cache=True, nogil=True, inline="always")
def find(table: NDArray[np.uint16], shift: np.uint64, h: np.uint64) -> int:
    """The value stored for a key, or -1. A slot holds a fingerprint of 9 bits above a value of 7; 0 is free."""
    slot = np.int64(h >> shift)
    fingerprint = np.int64((h >> np.uint64(20)) & np.uint64(0x1FF))
    for probe in range(PROBES):
        entry = np.int64(table[slot + probe])
        if entry == 0:
            return -1
        if entry >> VALUE_BITS == fingerprint:
            return int(entry & 0x7F)
    return -1


@njit(cache=True, nogil=True, inline="always")
def fold(cp: int, kind: int) -> int:
    """The character that counts: every digit is 0, every white space but the line end a space."""
    if kind == c.DIGIT:
        return 0x30
    if kind == c.SPACE:
        return 0x20
    if kind == c.NEWLINE:
        return 0x0A
    return cp


@njit(cache=True, nogil=True)
def score_alone(table: NDArray[np.uint16], char: int, floor: int) -> int:
    """The 1-gram score of a folded character."""
    bits = table_bits(table)
    score = find(table, np.uint64(64 - bits), key_hash(NOTHING, NOTHING, char))
    return score if score >= 0 else floor + BACKOFF


@njit(cache=True, nogil=True)
def table_bits(table: NDArray[np.uint16]) -> int:
    """The number of hash bits that a table of 2**bits + PROBES slots takes."""
    bits = 0
    while (1 << bits) < len(table) - PROBES:
        bits += 1
    return bits


@njit(cache=True, nogil=True)
def surprisal(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    wanted: NDArray[np.bool_],  # (segments,) the others keep zeros
    characters: NDArray[np.uint16],
    table: NDArray[np.uint16],  # (2**bits + PROBES,)
    floors: NDArray[np.int64],  # (256,) score of an unknown character by script; 0: the script is not modelled
    ceilings: NDArray[np.int64],  # (256,) highest sum of a natural block by script
    out: NDArray[np.int64],  # (segments, N_COLUMNS)
) -> None:
    """Per segment: SUM of scores over SCORED characters, characters in NOISE blocks, and PEAK.

    In a long quiet text only one block in three is looked at; a block near its ceiling has those before it
    looked at too, and then all that follow until it is quiet again.
    PEAK is the highest block sum in parts per thousand of its script's ceiling. Scripts without a model are
    skipped, and so are characters that show nothing.
    """
    shift = np.uint64(64 - table_bits(table))
    for s in range(len(offsets) - 1):
        if not wanted[s]:
            continue
        i, end = offsets[s], offsets[s + 1]
        a = b = np.int64(0x0A)
        total = scored = noise = peak = 0
        block = in_block = 0
        script = np.int64(c.LATIN)
        skipped = np.int64(-1)  # where the stretch began that was passed over just before this block
        held = i  # no block that begins before here is passed over
        while i < end:
            cp, i = decode(data, i)
            packed = np.int64(characters[cp])
            kind = packed & c.CLASS_MASK
            if kind >= c.CONTROL:
                continue
            char = fold(cp, kind)
            mine = packed >> c.SCRIPT_SHIFT
            if floors[mine] == 0:
                a, b = b, char
                continue
            score = find(table, shift, key_hash(a, b, char))
            if score < 0:
                score = find(table, shift, key_hash(NOTHING, b, char))
                if score < 0:
                    score = find(table, shift, key_hash(NOTHING, NOTHING, char))
                    score = (score if score >= 0 else floors[mine]) + BACKOFF
                score += BACKOFF
            a, b = b, char
            if mine > c.INHERITED:
                script = mine
            block += score
            in_block += 1
            if in_block < BLOCK:
                continue
            ceiling = ceilings[script]
            near = block * 5 > ceiling * 4
            if near and skipped >= 0:  # something is up: go back for the block that was passed over
                held, i, skipped = i, skipped, np.int64(-1)
                a = b = np.int64(0x0A)
                block = in_block = 0
                continue
            total += block
            scored += BLOCK
            if block > ceiling:
                noise += BLOCK
            peak = max(peak, block * 1000 // ceiling)
            block = in_block = 0
            skipped = np.int64(-1)
            if not near and i >= held and end - i > LONG:
                skipped = i
                passed = 0
                while passed < PASSED and i < end:
                    passed += (data[i] & 0xC0) != 0x80
                    i += 1
                while i < end and (data[i] & 0xC0) == 0x80:
                    i += 1
        out[s, SUM] = total + block
        out[s, SCORED] = scored + in_block
        out[s, NOISE] = noise
        out[s, PEAK] = peak
