"""What the page draws on, brought to this machine where the output lies in another place."""

from __future__ import annotations

from pathlib import Path

from cleanse.storage.files import Files

MOST_BYTES = 1 << 30
"""Of quarantine/, and of clean/, that are copied: the page shows a few hundred records of them."""

_TABLES = ("summary.json", "findings.parquet", "probe.parquet", "triggers.parquet")


def fetch(files: Files, out: Path) -> bool:
    """Copies what is needed; says no where quarantine/ is too large. A clean/ that is too large stays away."""
    files.fetch(*(out / name for name in _TABLES if files.has(out / name)))
    if not files.fetch_folder(out / "quarantine", MOST_BYTES):
        return False
    files.fetch_folder(out / "clean", MOST_BYTES)
    return True
