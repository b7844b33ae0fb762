from __future__ import annotations

import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cleanse import writers
from cleanse.findings import table
from cleanse.quarantine import build, schema_for
from cleanse.records import FINDINGS_SCHEMA, EventKind, Finding, ReadEvent, Stray
from cleanse.writers import Part, assemble_dataset, concatenate_bytes, concatenate_parquet

SCHEMA = pa.schema([("text", pa.string()), ("turns", pa.list_(pa.struct([("role", pa.string())])))])


def part(path: Path, texts: list[str], schema: pa.Schema = SCHEMA) -> Part:
    batch = pa.RecordBatch.from_pylist([{"text": t, "turns": [{"role": "user"}]} for t in texts], schema=schema)
    with pa.ipc.new_stream(str(path), schema) as stream:
        if texts:
            stream.write_batch(batch)
    return Part(path, len(texts))


def test_parts_become_one_dataset_in_order(tmp_path: Path) -> None:
    parts = [part(tmp_path / "0", ["a", "b"]), part(tmp_path / "1", []), part(tmp_path / "2", ["c"])]
    assemble_dataset(parts, SCHEMA, tmp_path / "clean", tmp_path / "work", "f" * 16)
    loaded = datasets.load_from_disk(str(tmp_path / "clean"))
    assert loaded["text"][:] == ["a", "b", "c"]
    assert loaded[2] == {"text": "c", "turns": [{"role": "user"}]}
    assert json.loads((tmp_path / "clean" / "state.json").read_text())["_fingerprint"] == "f" * 16
    assert sorted(p.name for p in (tmp_path / "clean").glob("*.arrow")) == [
        "data-00000-of-00002.arrow",
        "data-00001-of-00002.arrow",
    ]


def test_nothing_at_all_still_loads_with_its_columns(tmp_path: Path) -> None:
    for name, schema in {"clean": SCHEMA, "quarantine": schema_for(SCHEMA), "bare": pa.schema([])}.items():
        assemble_dataset([], schema, tmp_path / name, tmp_path / "work", "0" * 16)
        loaded = datasets.load_from_disk(str(tmp_path / name))
        assert (len(loaded), loaded.column_names) == (0, schema.names)


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_an_assembly_that_was_killed_goes_on(tmp_path: Path, moves: int) -> None:
    parts = [part(tmp_path / "0", ["a"]), part(tmp_path / "1", ["b"])]
    work = tmp_path / "work"
    work.mkdir()
    for i in range(moves):
        (tmp_path / str(i)).rename(work / f"data-0000{i}-of-00002.arrow")
    for _ in range(2):  # and is not done twice
        assemble_dataset(parts, SCHEMA, tmp_path / "clean", work, "0" * 16)
    assert datasets.load_from_disk(str(tmp_path / "clean"))["text"][:] == ["a", "b"]


def test_features_reach_the_loaded_dataset(tmp_path: Path) -> None:
    features = {"text": {"dtype": "string", "_type": "Value"}, "meta": {"_type": "Json"}}
    schema = writers.with_features(pa.schema([("text", pa.string()), ("meta", pa.json_())]), features)
    kept = writers.with_features(schema_for(schema), writers.quarantine_features(features))
    for name, wanted in (("clean", schema), ("quarantine", kept)):
        assemble_dataset([], wanted, tmp_path / name, tmp_path / "work", "0" * 16)
        loaded = datasets.load_from_disk(str(tmp_path / name))
        assert loaded.features["meta"] == datasets.Json()
    assert loaded.features["cleanse_reasons"] == datasets.List(datasets.Value("string"))
    assert loaded.features["cleanse_raw"] == datasets.Value("large_binary")


def test_quarantine_holds_records_and_strays_in_input_order() -> None:
    batch = pa.RecordBatch.from_pylist([{"text": "x", "turns": None}, {"text": "z", "turns": None}], schema=SCHEMA)
    event = ReadEvent(EventKind.UNPARSEABLE, 3, "")
    strays = [Stray(3, b"\xff\x00{", event), Stray(9, None, event)]
    reasons = [["a"], ["b", "c"], ["d"], []]
    import numpy as np

    made = build(batch, np.array([101, 105]), strays, reasons=reasons, source="in put.jsonl", offset=100)
    assert made.schema == schema_for(SCHEMA)
    assert made.select(["text", "cleanse_id", "cleanse_row", "cleanse_reasons", "cleanse_raw"]).to_pylist() == [
        {
            "text": "x",
            "cleanse_id": "in put.jsonl:101",
            "cleanse_row": 101,
            "cleanse_reasons": ["a"],
            "cleanse_raw": None,
        },
        {
            "text": None,
            "cleanse_id": "in put.jsonl:103",
            "cleanse_row": 103,
            "cleanse_reasons": ["b", "c"],
            "cleanse_raw": b"\xff\x00{",
        },
        {
            "text": "z",
            "cleanse_id": "in put.jsonl:105",
            "cleanse_row": 105,
            "cleanse_reasons": ["d"],
            "cleanse_raw": None,
        },
        {
            "text": None,
            "cleanse_id": "in put.jsonl:109",
            "cleanse_row": 109,
            "cleanse_reasons": [],
            "cleanse_raw": None,
        },
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pa.json_(),
        pa.list_(pa.json_()),
        pa.struct([pa.field("a", pa.int8(), nullable=False)]),
        pa.dictionary(pa.int32(), pa.string()),
        pa.null(),
        pa.timestamp("ns", "UTC"),
        pa.list_(pa.int64(), 3),
        pa.large_list(pa.large_string()),
        pa.map_(pa.string(), pa.int64()),
    ],
    ids=str,
)
def test_strays_stand_beside_columns_of_any_type(kind: pa.DataType) -> None:
    import numpy as np

    batch = pa.record_batch([pa.nulls(1, kind)], schema=pa.schema([("c", kind)]))
    made = build(
        batch,
        np.array([1]),
        [Stray(0, b"?", ReadEvent(EventKind.UNPARSEABLE, 0, ""))],
        reasons=[["a"], ["b"]],
        source="s",
        offset=0,
    )
    made.validate(full=True)
    assert made.column("c").type == kind
    assert made.column("cleanse_row").to_pylist() == [0, 1]


def test_a_quarantine_can_be_scanned_again() -> None:
    again = schema_for(schema_for(SCHEMA))
    assert len(set(again.names)) == len(again.names)
    assert "input_cleanse_raw" in again.names


def test_findings_parts_become_groups_of_one_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_FINDINGS_PER_GROUP", 10)
    rows = iter(range(1000))
    for i, size in enumerate([3, 0, 25, 1, 1, 14]):
        found = [Finding("s", next(rows), "r", "note", "", None, None, None, None, "", "") for _ in range(size)]
        pq.write_table(table(found), tmp_path / f"{i}.parquet", row_group_size=4)
    concatenate_parquet([tmp_path / f"{i}.parquet" for i in range(6)], FINDINGS_SCHEMA, tmp_path / "all.parquet")
    with pq.ParquetFile(tmp_path / "all.parquet") as file:
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        assert sizes == [10, 10, 10, 10, 4]
        assert file.schema_arrow == FINDINGS_SCHEMA
        assert file.read().column("row").to_pylist() == list(range(44))


def test_bytes_are_joined_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n\xff")
    (tmp_path / "b").write_bytes(b"2\n")
    concatenate_bytes([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == b"1\n\xff2\n"
    assert not list(tmp_path.glob("*.tmp"))
