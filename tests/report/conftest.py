"""Finished scans to make pages of."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import hostile

from cleanse.config import ScanConfig
from cleanse.pipeline import scan
from cleanse.report.scan_facts import ScanFacts
from cleanse.sources import ReadOptions


def scanned(source: Path, out: Path, **options: object) -> Path:
    """Scans without a probe, in one process, in small shards so that there are several Arrow files."""
    scan(ScanConfig((str(source),), out, workers=1, read=ReadOptions(shard_bytes=4096), **options))
    return out


@pytest.fixture(scope="session")
def hostile_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scan of a corpus that tries to break out."""
    folder = tmp_path_factory.mktemp("hostile")
    return scanned(hostile.write(folder), folder / "out")


@pytest.fixture
def facts(hostile_out: Path) -> ScanFacts:
    return ScanFacts(hostile_out)
