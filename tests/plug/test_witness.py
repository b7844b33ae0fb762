from __future__ import annotations

import json
import random
from pathlib import Path

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest

import cleanse
from scripts.make_sample import MAKERS, printable_noise

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> Path:
    """Good records, and noise that a rule suspects."""
    rng = random.Random(3)
    path = tmp_path_factory.mktemp("probe") / "d.jsonl"
    rows = [MAKERS[i % len(MAKERS)](rng) for i in range(120)]
    for at in (40, 90):
        rows[at]["output"] = printable_noise(rng, 200)
    rows[60]["output"] = "plain\u202etext"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("scope", ["suspects", "all"])
def test_the_probe_says_what_it_says_in_a_scan(lines: Path, tmp_path: Path, scope: str) -> None:
    options = {"scope": scope, "budget": 0.02}
    result = cleanse.scan(lines, tmp_path / "o", probe="auto", probe_options=options, corpus=False, workers=1)
    held = result.load_quarantine()["cleanse_row"][:]
    ds = datasets.Dataset.from_json(str(lines), cache_dir=str(tmp_path / "c"))
    filt = cleanse.Filter(probe="auto", probe_options=options)
    told = ds.map(filt.annotate, batched=True)
    assert [i for i, verdict in enumerate(told["cleanse_verdict"][:]) if verdict == "quarantine"] == held
    assert len(ds.filter(filt, batched=True)) == result.clean
    probed = pq.read_table(tmp_path / "o" / "probe.parquet").to_pydict()
    for name in ("loss", "grad_norm", "p_value"):
        mine = told.with_format("numpy")[f"cleanse_{name}"][:][probed["row"]]
        np.testing.assert_allclose(mine, np.array(probed[name], float), rtol=1e-3, equal_nan=True)
    measured = sum(loss is not None for loss in told["cleanse_loss"][:])
    assert measured == len(probed["row"])
    spikes = [r for r in told["cleanse_reasons"][:] if "probe.spike" in r]
    assert spikes, "the noise should spike"
    assert filt.fingerprint != cleanse.Filter().fingerprint


def test_nothing_suspect_loads_no_model(monkeypatch) -> None:
    from cleanse.plug import witness

    monkeypatch.setattr(witness, "open_probe", None)
    filt = cleanse.Filter(probe="auto")
    told = filt.annotate({"text": ["All is well with this line of text."] * 3})
    assert told["cleanse_loss"] == [None, None, None]
