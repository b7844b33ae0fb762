"""Filter and scan on a sample of every evaluation set; ``benchmarks/agreement.py`` takes all of them whole."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from agreement import compare

SAMPLE = 400  # records of a set, beside those that are labelled


def test_filter_and_scan_agree_on_every_set(shared_data: Path, tmp_path: Path) -> None:
    paths = sorted(shared_data.rglob("*.jsonl"))
    assert len(paths) >= 10
    n_held = 0
    for path in paths:
        labels = json.loads(path.with_suffix("").with_suffix(".labels.json").read_text())["labels"]
        lines = path.read_bytes().splitlines(keepends=True)
        step = max(1, len(lines) // SAMPLE)
        labelled = list(map(int, labels))[:SAMPLE]
        chosen = sorted({*range(0, len(lines), step), *labelled})
        folder = tmp_path / path.stem
        folder.mkdir()
        sample = folder / path.name
        sample.write_bytes(b"".join(lines[i] for i in chosen))
        found = compare(sample, folder)
        assert not any(found.disputed.values()), (path.name, found)
        assert found.records + found.strays == len(chosen)
        n_held += found.held
    assert n_held > 100
