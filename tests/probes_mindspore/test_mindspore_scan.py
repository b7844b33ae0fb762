"""A scan with MindSpore comes to the same verdicts as one with torch, record for record."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mindspore_families import missing

if why := missing("mindspore", "torch"):
    pytest.skip(why, allow_module_level=True)

from cleanse.config import ScanConfig
from cleanse.pipeline import scan
from cleanse.probing.settings import ProbeSettings

SENTENCES = [
    "The river rose in the night and the bridge was closed.",
    "She put the letter back into the drawer and said nothing.",
    "To install the package, run the command below in a terminal.",
    "Twelve apples cost three dollars, so one apple costs a quarter.",
    "The meeting is on Thursday; please bring the printed report.",
    "Copper conducts heat better than iron, and silver better than both.",
]


def _data(path: Path) -> Path:
    rng = random.Random(3)
    rows = [" ".join(rng.choices(SENTENCES, k=rng.randint(1, 4))) for _ in range(150)]
    for i in (10, 60, 110):
        rows[i] = "odd " + "".join(chr(rng.randint(33, 126)) for _ in range(120))
        rows[i + 1] = "odd " + rows[i + 1]
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows), encoding="utf-8")
    return path


def _scanned(data: Path, out: Path, pack: Path, backend: str) -> tuple[list[tuple[int, list[str]]], pa.Table]:
    probe = ProbeSettings(backend=backend, device="cpu", scope="suspects", budget=0.02, max_tokens=64, fp16=True)
    result = scan(ScanConfig((str(data),), out, packs=("probe", str(pack)), probe=probe, corpus=False, workers=1))
    held = [(int(r["cleanse_row"]), list(r["cleanse_reasons"])) for r in result.load_quarantine()]
    return held, pq.read_table(out / "probe.parquet")


def test_verdicts_are_those_of_torch(tmp_path: Path) -> None:
    pack = tmp_path / "odd.toml"
    pack.write_text(
        '[[rule]]\nid = "odd.word"\nsummary = "odd"\nwhy = "odd"\npattern = "odd"\naction = "suspect"\n'
        'should_match = ["odd"]\nshould_pass = ["even"]\nsince = "0.1"\n'
    )
    data = _data(tmp_path / "d.jsonl")
    held, ours = _scanned(data, tmp_path / "mindspore", pack, "mindspore")
    wanted, theirs = _scanned(data, tmp_path / "torch", pack, "torch")
    assert held == wanted
    assert [row for row, _ in held] == [10, 60, 110]
    assert ours.column_names == theirs.column_names
    for name in ("row", "role", "n_tokens", "worst", "dtype"):
        assert ours.column(name).to_pylist() == theirs.column(name).to_pylist()
    for name in ("loss", "max_token_loss", "context_gain", "order_gain", "grad_norm", "activation_amax"):
        figures = ours.column(name).to_numpy(), theirs.column(name).to_numpy()
        np.testing.assert_allclose(*figures, rtol=1e-4, atol=1e-4, err_msg=name)
