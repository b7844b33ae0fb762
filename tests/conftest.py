"""What all tests share: where the evaluation data lies, when it is there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest
from storage_server import s3, s3_endpoint  # noqa: F401 - fixtures for every room

# A first example may compile a kernel, and a machine may be busy: no test is about how long one takes.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

SHARED = Path(os.environ.get("CLEANSE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The evaluation data beside the project, or a skip that says what is missing."""
    data = SHARED / "data"
    if not data.is_dir():
        pytest.skip(f"no evaluation data at {data}: set CLEANSE_SHARED to the folder that holds data/")
    return data


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Programs that tests start can be interrupted, even where the tests run in the background of a shell.

    A shell without job control starts background jobs with SIGINT ignored, and children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def bug_reports(shared_data: Path) -> Path:
    """The traits of real failures, one JSON object per line."""
    return shared_data.parent / "cases" / "bug_reports.jsonl"
