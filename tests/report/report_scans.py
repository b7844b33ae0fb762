"""Scans for the tests of the report."""

from __future__ import annotations

from pathlib import Path

from cleanse.config import ScanConfig
from cleanse.pipeline import scan
from cleanse.sources import ReadOptions


def scanned(source: Path, out: Path, **options: object) -> Path:
    """Scans without a probe, in one process, in small shards so that there are several Arrow files."""
    scan(ScanConfig((str(source),), out, workers=1, read=ReadOptions(shard_bytes=4096), **options))
    return out
