"""The built-in rule packs: TOML files, and the measures and repairs they need, registered on import."""

from __future__ import annotations

from . import (
    hexdump,
    mojibake,
    profile,
    regional,
    repairs,
    repetition,
    sentences,
    structure,
    surprisal,
    tokens,
    trainer,
    turns,
)

__all__ = [
    "hexdump",
    "mojibake",
    "profile",
    "regional",
    "repairs",
    "repetition",
    "sentences",
    "structure",
    "surprisal",
    "tokens",
    "trainer",
    "turns",
]
