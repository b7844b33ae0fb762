"""What all tests share: where the evaluation data lies, when it is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("CLEANSE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The evaluation data beside the project, or a skip that says what is missing."""
    data = SHARED / "data"
    if not data.is_dir():
        pytest.skip(f"no evaluation data at {data}: set CLEANSE_SHARED to the folder that holds data/")
    return data


@pytest.fixture(scope="session")
def bug_reports(shared_data: Path) -> Path:
    """The traits of real failures, one JSON object per line."""
    return shared_data.parent / "cases" / "bug_reports.jsonl"
