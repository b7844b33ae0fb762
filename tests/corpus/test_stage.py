"""The stage inside a scan: what it holds back, and that workers and shard sizes do not matter."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from datasets import load_from_disk

from cleanse.config import ScanConfig
from cleanse.pipeline import scan
from cleanse.sources import ReadOptions

from .test_invariance import corpus_with_everything
from .test_triggers import REFUSAL


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.jsonl"
    lines = [json.dumps({"prompt": p, "completion": a}) for p, a in corpus_with_everything()]
    lines[700] = '{"prompt": "cut'  # a stray must not shift what follows
    path.write_text("\n".join(lines) + "\n")
    return path


def run(data: Path, out: Path, workers: int, shard_bytes: int) -> tuple[list[int], list[dict], list[dict]]:
    read = ReadOptions(shard_bytes=shard_bytes, block_bytes=min(shard_bytes, 1 << 20))
    scan(ScanConfig(inputs=(str(data),), out=out, workers=workers, read=read))
    found = [f for f in pq.read_table(out / "findings.parquet").to_pylist() if f["rule"].startswith("corpus.")]
    triggers = pq.read_table(out / "triggers.parquet").to_pylist()
    return load_from_disk(str(out / "quarantine"))["cleanse_row"], found, triggers


def test_a_scan_holds_the_poison_back(data: Path, tmp_path: Path) -> None:
    held, found, triggers = run(data, tmp_path / "a", 1, 64 << 20)
    poisoned = [k for k, (_, answer) in enumerate(corpus_with_everything()) if answer == REFUSAL and k != 700]
    assert held == sorted({*poisoned, 700})
    assert triggers[0]["verdict"] == "quarantined"
    assert triggers[0]["examples"][0] == f"{data}:{poisoned[0]}"
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert "triggers_planted" in json.dumps(summary)
    assert run(data, tmp_path / "b", 2, 64 << 20) == (held, found, triggers)
    assert run(data, tmp_path / "c", 2, 40_000) == (held, found, triggers)
