"""Finished scans to make pages of."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import hostile_records as hostile
from report_scans import scanned

from cleanse.probing.measure import SCHEMA
from cleanse.probing.settings import ProbeSettings
from cleanse.probing.telling import probe_table
from cleanse.report.scan_facts import ScanFacts


@pytest.fixture(scope="session")
def hostile_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scan of a corpus that tries to break out."""
    folder = tmp_path_factory.mktemp("hostile")
    return scanned(hostile.write(folder), folder / "out")


@pytest.fixture
def facts(hostile_out: Path) -> ScanFacts:
    return ScanFacts(hostile_out)


CONTROLS, SUSPECTS = 600, 4


@pytest.fixture(scope="session")
def probed_out(hostile_out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hostile scan as if its probe had run: rows 0 to 599 are controls, 600 to 603 suspects, one convicted."""
    folder = tmp_path_factory.mktemp("probed") / "out"
    shutil.copytree(hostile_out, folder)
    summary = json.loads((folder / "summary.json").read_text())
    name = summary["sources"][0]["name"]
    n = CONTROLS + SUSPECTS
    draw = np.random.default_rng(0)
    values = {field.name: pa.nulls(n, field.type) for field in SCHEMA}
    figures = {
        "shard": np.zeros(n, np.int32),
        "row": np.arange(n),
        "suspect": np.arange(n) >= CONTROLS,
        "n_tokens": np.full(n, 20),
        "loss": np.concatenate([draw.normal(3, 0.3, CONTROLS), [3.0, 3.1, 9.0, np.nan]]),
        "grad_norm": np.concatenate([draw.lognormal(1, 0.2, CONTROLS), [2.0, 2.5, 80.0, 3.0]]),
        "max_token_loss": np.full(n, 12.0),
        "nats_per_byte": np.full(n, 0.75),
        "loss_finite": np.arange(n) < n - 1,
        "grad_finite": np.ones(n, np.bool_),
        "worst": ["a \u00ab<b>\u00bb"] * n,
        "problem": [""] * n,
        "token_losses": [None] * CONTROLS
        + [[{"text": "a<", "loss": None}, {"text": "\u200b", "loss": 9.0}, {"text": " c", "loss": 0.1}]] * SUSPECTS,
    }
    for key, column in figures.items():
        values[key] = pa.array(column, SCHEMA.field(key).type)
    measured = pa.Table.from_arrays([values[field.name] for field in SCHEMA], schema=SCHEMA)
    p = np.concatenate([np.full(CONTROLS, np.nan), [0.4, 0.5, 0.001, np.nan]])
    judgement = SimpleNamespace(p_values=p)
    pq.write_table(probe_table(measured, judgement, {0: name}, np.arange(n), ProbeSettings()), folder / "probe.parquet")
    summary["evidence"]["probe"] = {"level_suspects": 0.02, "level_others": 0.0, "notes": ["a <note>"]}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder
