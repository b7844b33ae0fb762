"""Guesses which encoding bytes are in that are not UTF-8, for a message: never to decode with."""

from __future__ import annotations

from collections.abc import Callable

_C1_IN_1252 = frozenset(range(0x80, 0xA0)) - {0x81, 0x8D, 0x8F, 0x90, 0x9D}
_NEVER_TEXT = frozenset(b"\xfe\xff")  # thorn and y-diaeresis in Latin-1: far likelier damage than text

# Encoding -> whether a character is one that text in this encoding mostly consists of.
_SCRIPTS: dict[str, Callable[[str], bool]] = {
    "shift_jis": lambda c: "\u3040" <= c <= "\u30ff",
    "euc_jp": lambda c: "\u3040" <= c <= "\u30ff",
    "euc_kr": lambda c: "\uac00" <= c <= "\ud7a3",
    "gb18030": lambda c: "\u4e00" <= c <= "\u9fff",
    "big5": lambda c: "\u4e00" <= c <= "\u9fff",
    "cp1251": lambda c: "\u0430" <= c <= "\u044f",
    "koi8_r": lambda c: "\u0430" <= c <= "\u044f",
}
_NAMES = {"cp1251": "windows-1251", "shift_jis": "Shift_JIS", "euc_jp": "EUC-JP", "euc_kr": "EUC-KR", "big5": "Big5"}
_SAMPLE = 4096  # bytes looked at
_SURE = 0.7  # share of the characters that must be of the encoding's script


def likely(raw: bytes, offset: int) -> str:
    """What the byte at ``offset`` probably is, as the end of a sentence: "likely windows-1252"."""
    if raw[offset] == 0xED and 0xA0 <= (raw[offset + 1 : offset + 2] or b"\0")[0] <= 0xBF:
        return "likely a UTF-16 surrogate encoded on its own (CESU-8)"
    sample = raw[max(0, offset - _SAMPLE // 2) : offset + _SAMPLE // 2]
    text = sample.decode("utf-8", "surrogateescape")
    lost = sum(1 for c in text if "\udc80" <= c <= "\udcff")
    if sum(1 for c in text if c > "\x7f") > 2 * lost:
        return "UTF-8 otherwise: likely a character that was cut or overwritten"
    high = [b for b in sample if b >= 0x80]
    runs = sum(1 for a, b in zip(sample, sample[1:], strict=False) if a >= 0x80 and b >= 0x80)
    if 2 * runs > len(high) > 3:  # mostly neighbours: a script of its own, not accents among ASCII
        for encoding, typical in _SCRIPTS.items():
            if _share(sample, encoding, typical) >= _SURE:
                return f"likely {_NAMES.get(encoding, encoding)}"
    if raw[offset] in _NEVER_TEXT:
        return "no text encoding is likely: damaged or binary"
    if all(b >= 0xA0 or b in _C1_IN_1252 for b in high):
        return "likely windows-1252"
    return "no text encoding is likely: damaged or binary"


def _share(sample: bytes, encoding: str, typical: Callable[[str], bool]) -> float:
    """Share of the non-ASCII characters that are typical, if the sample is decoded so (0 if it cannot be)."""
    text = sample.decode(encoding, "ignore")
    lost = len(sample) - len(text.encode(encoding, "ignore"))
    foreign = [c for c in text if ord(c) >= 0x80]
    return sum(map(typical, foreign)) / (len(foreign) + lost) if foreign else 0.0
