from __future__ import annotations

from pathlib import Path

import dirty

from scripts.kill_test import trial


def test_kills_and_workers_do_not_change_a_byte(tmp_path: Path) -> None:
    """The small version of ``python -m scripts.kill_test``: a few kills instead of twenty."""
    dirty.write(tmp_path / "d.jsonl", 3000)
    problems = trial(
        [str(tmp_path / "d.jsonl")],
        tmp_path,
        kills=4,
        seed=3,
        options=["--shard-bytes", "60KB", "--probe", "none"],
        say=False,
    )
    assert problems == []
