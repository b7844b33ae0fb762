"""The built-in rule packs: TOML files, and the measures and repairs they need, registered on import."""

from __future__ import annotations

from cleanse.rules import mojibake, profile, repairs, structure

__all__ = ["mojibake", "profile", "repairs", "structure"]
