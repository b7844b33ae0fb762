"""Guesses which encoding bytes are in that are not UTF-8, for a message: never to decode with."""

from __future__ import annotations

import re
from collections.abc import Callable

_CESU = re.compile(rb"\xed[\xa0-\xbf]")
_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
_NOT_1252 = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # the bytes that windows-1252 leaves undefined
_LAST_ASCII = "\x7f"
_FEW = 4  # bytes beyond ASCII, below which a script cannot be told
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
    if _CESU.match(raw, offset):
        return "likely a UTF-16 surrogate encoded on its own (CESU-8)"
    sample = raw[max(0, offset - _SAMPLE // 2) : offset + _SAMPLE // 2]
    text = sample.decode("utf-8", "surrogateescape")
    lost = sum(1 for c in text if "\udc80" <= c <= "\udcff")
    if sum(1 for c in text if c > _LAST_ASCII) > 2 * lost:
        return "UTF-8 otherwise: likely a character that was cut or overwritten"
    runs = [len(run) for run in _HIGH_RUN.findall(sample)]
    if sum(runs) >= _FEW and 2 * sum(n for n in runs if n > 1) > sum(runs):  # a script of its own, no mere accents
        for encoding, typical in _SCRIPTS.items():
            if _share(sample, encoding, typical) >= _SURE:
                return f"likely {_NAMES.get(encoding, encoding)}"
    if raw[offset] in _NEVER_TEXT or _NOT_1252.search(sample):
        return "no text encoding is likely: damaged or binary"
    return "likely windows-1252"


def _share(sample: bytes, encoding: str, typical: Callable[[str], bool]) -> float:
    """Share of the non-ASCII characters that are typical, if the sample is decoded so (0 if it cannot be)."""
    text = sample.decode(encoding, "ignore")
    lost = len(sample) - len(text.encode(encoding, "ignore"))
    foreign = [c for c in text if c > _LAST_ASCII]
    return sum(map(typical, foreign)) / (len(foreign) + lost) if foreign else 0.0
