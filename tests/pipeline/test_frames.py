from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

import cleanse


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> cleanse.ScanResult:
    folder: Path = tmp_path_factory.mktemp("frames")
    rows = ["All is well with this line of text.", "Left\u202eright and so on."]
    (folder / "d.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    return cleanse.scan(folder / "d.jsonl", folder / "o", probe="none", workers=1)


def test_findings_in_one_call(result: cleanse.ScanResult) -> None:
    frame = result.findings()
    assert isinstance(frame, pl.DataFrame)
    assert frame.to_dicts() == pq.read_table(result.out / "findings.parquet").to_pylist() != []
    assert len(frame) == result.n_findings
    pandas = frame.to_pandas()
    assert list(pandas["rule"]) == frame["rule"].to_list()
    assert result.triggers().columns == pq.read_schema(result.out / "triggers.parquet").names


def test_what_was_not_measured_is_an_error_that_says_so(result: cleanse.ScanResult) -> None:
    with pytest.raises(cleanse.CleanseError, match="no probe"):
        result.probe()
