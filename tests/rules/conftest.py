"""Kernels are compiled before any test is timed."""

from __future__ import annotations

import pytest

from cleanse.measures import TextBatch
from cleanse.rulepacks import load_packs


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    """Runs every kernel once: numba compiles on first use, or loads from its cache."""
    load_packs(("encoding", "gibberish", "repetition")).evaluate(TextBatch.from_texts(["\u4e2d" * 300, "a" * 300]))
