"""Parquet and Arrow: types kept as they are, damage named, several files put together."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from cleanse.records import EventKind

from .reading import read, write

TABLE = pa.table(
    {
        "text": pa.array(["one", None, "three"] * 100),
        "small": pa.array([1, None, 3] * 100, pa.int8()),
        "long": pa.array([2**60, None, -3] * 100, pa.int64()),
        "single": pa.array([0.5, None, 1.5] * 100, pa.float32()),
        "when": pa.array([dt.datetime(2020, 1, 1), None, None] * 100, pa.timestamp("us")),  # noqa: DTZ001
        "bytes": pa.array([b"\xff", None, b""] * 100, pa.binary()),
        "none": pa.nulls(300, pa.string()),
        "lists": pa.array([[1, None], [], None] * 100, pa.list_(pa.int32())),
        "turns": pa.array(
            [[{"role": "user", "n": 1}], None, []] * 100,
            pa.list_(pa.struct([("role", pa.string()), ("n", pa.uint8())])),
        ),
        "map": pa.array([[("k", 1)], None, []] * 100, pa.map_(pa.string(), pa.int64())),
    }
)
ODD = pa.table(
    {
        "text": TABLE["text"].cast(pa.large_string()),
        "view": TABLE["text"].cast(pa.string_view()),
        "words": TABLE["text"].dictionary_encode(),
        "turns": TABLE["turns"].cast(pa.large_list(pa.struct([("role", pa.large_string()), ("n", pa.uint8())]))),
    }
)


def parquet(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path, row_group_size=70)
    return path


def arrow_file(path: Path, table: pa.Table) -> Path:
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)
    return path


def arrow_stream(path: Path, table: pa.Table) -> Path:
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)
    return path


def feather_lz4(path: Path, table: pa.Table) -> Path:
    feather.write_feather(table, str(path), compression="lz4", chunksize=70)
    return path


WRITERS = [(parquet, ".parquet"), (arrow_file, ".arrow"), (arrow_stream, ".arrow"), (feather_lz4, ".feather")]


@pytest.mark.parametrize(("writer", "extension"), WRITERS)
@pytest.mark.parametrize("shard_bytes", [1, 1 << 26])
def test_types_and_values_are_kept(tmp_path: Path, writer: Any, extension: str, shard_bytes: int) -> None:
    got = read(writer(tmp_path / f"a{extension}", TABLE), shard_bytes=shard_bytes, block_bytes=500)
    assert got.schema.equals(TABLE.schema)
    assert got.rows() == TABLE.to_pylist()
    assert len(got.plan.shards) == (5 if shard_bytes == 1 else 1)
    assert not got.second.events


@pytest.mark.parametrize(("writer", "extension"), [(arrow_file, ".arrow"), (arrow_stream, ".arrow")])
def test_layouts_are_made_usual(tmp_path: Path, writer: Any, extension: str) -> None:
    got = read(writer(tmp_path / f"a{extension}", ODD))
    assert [str(kind) for kind in got.schema.types[:3]] == ["string"] * 3
    assert got.schema.field("turns").type == TABLE.schema.field("turns").type
    assert got.rows() == ODD.to_pylist()


def test_files_of_different_formats_are_put_together(tmp_path: Path) -> None:
    one = pa.table({"text": ["a"], "n": pa.array([1], pa.int32()), "x": pa.array([0.5], pa.float32())})
    two = pa.table({"text": ["b"], "n": pa.array([2], pa.int64()), "when": pa.array([1], pa.date32())})
    paths = [
        parquet(tmp_path / "1.parquet", one),
        arrow_file(tmp_path / "2.arrow", two),
        write(tmp_path / "3.jsonl", '{"text": "c", "n": 3, "x": 2, "extra": {"k": 1}}'),
    ]
    (tmp_path / "4.csv").write_text("text,n\nd,4\n")
    got = read(*paths, tmp_path / "4.csv")
    assert dict(zip(got.schema.names, got.schema.types, strict=True)) == {
        "text": pa.string(),
        "n": pa.int64(),
        "x": pa.float64(),
        "when": pa.date32(),
        "extra": pa.struct([("k", pa.int64())]),
    }
    assert [(r["text"], r["n"], r["x"]) for r in got.rows()] == [
        ("a", 1, 0.5),
        ("b", 2, None),
        ("c", 3, 2.0),
        ("d", 4, None),
    ]


def test_what_no_type_holds_becomes_json(tmp_path: Path) -> None:
    one = parquet(tmp_path / "1.parquet", pa.table({"v": pa.array([dt.date(2020, 1, 2)]), "b": [b"\xff"]}))
    two = write(tmp_path / "2.jsonl", '{"v": "soon", "b": "text"}', '{"v": "later", "b": "text"}')
    got = read(one, two)
    assert [json.loads(r["v"]) for r in got.rows()] == ["2020-01-02", "soon", "later"]
    assert [json.loads(r["b"]) for r in got.rows()] == ["/w==", "text", "text"]


def test_features_of_a_file_are_carried(tmp_path: Path) -> None:
    feature = {"names": ["no", "yes"], "_type": "ClassLabel"}
    described = json.dumps({"info": {"features": {"label": feature, "text": {"dtype": "string", "_type": "Value"}}}})
    table = pa.table({"label": pa.array([0, 1]), "text": ["a", "b"]})
    path = parquet(tmp_path / "1.parquet", table.replace_schema_metadata({"huggingface": described}))
    assert json.loads(read(path).schema.metadata[b"huggingface"])["info"]["features"]["label"] == feature
    other = write(tmp_path / "2.jsonl", '{"label": "maybe", "text": "c"}')
    merged = json.loads(read(path, other).schema.metadata[b"huggingface"])["info"]["features"]
    assert merged["label"] != feature


@pytest.mark.parametrize(("writer", "extension"), [(parquet, ".parquet"), (arrow_file, ".arrow")])
def test_text_that_is_not_utf8_is_set_apart(tmp_path: Path, writer: Any, extension: str) -> None:
    offsets = np.array([0, 2, 5, 6], np.int32)
    bad = pa.StringArray.from_buffers(3, pa.py_buffer(offsets), pa.py_buffer(b"ab it\x92"[:2] + b"it\x92" + b"c"))
    got = read(writer(tmp_path / f"a{extension}", pa.table({"text": bad, "n": [1, 2, 3]})))
    (event,) = got.found(EventKind.INVALID_UTF8)
    assert (event.row, event.field) == (1, "text")
    assert event.detail == "text: byte 0x92 at offset 2; likely windows-1252"
    assert got.second.strays[0, 1].raw == b"it\x92"
    assert [r["n"] for r in got.rows()] == [1, 3]


@pytest.mark.parametrize(("writer", "extension"), WRITERS)
def test_an_oversized_record_is_kept_by_reference(tmp_path: Path, writer: Any, extension: str) -> None:
    table = pa.table({"text": ["a", "y" * 10_000, "b"]})
    got = read(writer(tmp_path / f"a{extension}", table), max_record_bytes=5000)
    (event,) = got.found(EventKind.TOO_LARGE)
    assert event.row == 1
    assert [r["text"] for r in got.rows()] == ["a", "b"]


@pytest.mark.parametrize("where", ["header", "data"])
def test_a_damaged_row_group_loses_its_records_only(tmp_path: Path, where: str) -> None:
    table = pa.table({"text": [f"record {i} " * 20 for i in range(100)]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=50, use_dictionary=False, write_page_checksum=True)
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data = bytearray(path.read_bytes())
    middle = column.data_page_offset + (0 if where == "header" else column.total_compressed_size // 2)
    data[middle : middle + 8] = bytes(b ^ 0xFF for b in data[middle : middle + 8])
    path.write_bytes(data)
    got = read(path)
    (event,) = got.found(EventKind.READ_ERROR)
    assert event.row == 0
    assert "50 records are lost" in event.detail
    assert sorted(row for _, row in got.second.records) == list(range(50, 100))


@pytest.mark.parametrize(("writer", "extension"), WRITERS)
def test_a_file_cut_in_the_middle(tmp_path: Path, writer: Any, extension: str) -> None:
    path = writer(tmp_path / f"a{extension}", TABLE.select(["text", "lists"]))
    whole = path.read_bytes()
    for size in (len(whole) // 2, len(whole) - 5, 12):
        path.write_bytes(whole[:size])
        got = read(path)
        assert len(got.found(EventKind.READ_ERROR)) == 1
        assert got.rows() == TABLE.select(["text", "lists"]).to_pylist()[: len(got.rows())]
        assert got.rows() or size == 12 or writer is not arrow_stream


def test_an_empty_table(tmp_path: Path) -> None:
    for writer, extension in WRITERS:
        got = read(writer(tmp_path / f"a{extension}", TABLE.slice(0, 0)))
        assert got.rows() == []
        assert got.schema.equals(TABLE.schema)
