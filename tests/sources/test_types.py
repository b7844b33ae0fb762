"""Types: merged in any order, turned into a schema that holds every value, and understood by datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanse.records import EventKind
from cleanse.sources import Types, open_shard
from cleanse.sources.features import json_type
from cleanse.sources.observe import observe_record
from cleanse.sources.types import MAX_KEYS

from .reading import Read, read, write
from .test_shards import RECORDS


def types_of(records: list[dict[str, Any]], source: int = 0) -> Types:
    types = Types()
    for place, record in enumerate(records):
        observe_record(types, record, (source, place))
    return types


GROUPS = st.lists(RECORDS, max_size=4)


@settings(max_examples=80, deadline=None)
@given(a=GROUPS, b=GROUPS, c=GROUPS)
def test_merge_is_associative_and_commutative(a: list[Any], b: list[Any], c: list[Any]) -> None:
    x, y, z = types_of(a, 0), types_of(b, 1), types_of(c, 2)
    before = json.dumps([x.to_json(), y.to_json()])
    assert x.merge(y) == y.merge(x)
    assert x.merge(y).merge(z) == x.merge(y.merge(z))
    assert x.merge(y).schema().equals(y.merge(x).schema(), check_metadata=True)
    assert json.dumps([x.to_json(), y.to_json()]) == before
    assert Types.from_json(json.loads(json.dumps(x.merge(y).to_json()))) == x.merge(y)


def test_merge_of_dictionaries_with_many_keys_is_associative() -> None:
    parts = [
        types_of([{"d": {f"k{i}": 1 for i in range(start, start + 50)}, "e": 1}], start) for start in (0, 40, 80, 120)
    ]
    a, b, c, d = parts
    one = a.merge(b).merge(c).merge(d)
    assert one == a.merge(b.merge(c.merge(d))) == d.merge(c).merge(a.merge(b))
    assert one.schema().field("d").type == json_type()
    assert one.schema().field("e").type == pa.int64()
    assert pa.types.is_struct(a.merge(b).schema().field("d").type)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None, None], pa.null()),
        ([1, None, 3], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([2**64 - 1, 1], pa.uint64()),
        ([2**64 - 1, -1], "json"),
        ([2**53 + 1, 1.5], "json"),
        ([2**53, 1.5], pa.float64()),
        ([True, False], pa.bool_()),
        ([True, 1], "json"),
        (["x", "y", 1, True, 2.5], pa.string()),
        ([1, 2, "x"], "json"),
        (["x", ["y"]], "json"),
        (["x", {"y": 1}], "json"),
        ([[], [None]], pa.list_(pa.null())),
        ([[], ["x"]], pa.list_(pa.string())),
        ([["x", "y", 1]], pa.list_(pa.string())),
        ([[{"a": 1}, {"b": "x"}]], pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
        ([{"a": {}}, {"a": {"b": None}}], pa.struct([("a", pa.struct([("b", pa.null())]))])),
        ([{}, {}], "json"),
        ([{str(i): 1} for i in range(MAX_KEYS + 1)], "json"),
    ],
)
def test_the_type_of_a_column(tmp_path: Path, values: list[Any], kind: Any) -> None:
    path = write(tmp_path / "a.jsonl", *[json.dumps({"a": value}) for value in values])
    got = read(path, block_bytes=16)
    assert got.schema.field("a").type == (json_type() if kind == "json" else kind)
    made = [row["a"] for row in got.rows()]
    if kind == "json":
        assert [json.loads(text) for text in made] == values
    if kind == pa.string():
        assert made == ["x", "y", "1", "true", "2.5"]


def test_the_smallest_enclosing_column_becomes_json(tmp_path: Path) -> None:
    records = [
        {"messages": [{"role": "user", "content": "hi"}], "id": 1},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "id": 2},
    ]
    got = read(write(tmp_path / "a.jsonl", *map(json.dumps, [records[0]] * 3 + [records[1]])))
    turn = got.schema.field("messages").type.value_type
    assert turn.field("role").type == pa.string()
    assert turn.field("content").type == json_type()
    (event,) = got.found(EventKind.MIXED_TYPE)
    assert (event.row, event.field) == (3, "messages[0].content")


def test_a_hostile_record_does_not_flood_the_findings(tmp_path: Path) -> None:
    lines = [json.dumps({"a": ["x"] * 1000}), json.dumps({"a": [1] * 900})]
    got = read(write(tmp_path / "a.jsonl", *lines))
    assert 1 <= len(got.found(EventKind.MIXED_TYPE)) <= 8


def test_nesting_beyond_reason_is_kept_as_json(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(60):
        deep = {"d": [deep]}
    got = read(write(tmp_path / "a.jsonl", json.dumps({"a": deep}), '{"a": null}'))
    text = str(got.schema.field("a").type)
    assert "json" in text or json_type() == pa.string()
    assert text.count("struct") <= 32
    assert not got.second.strays


def saved(got: Read, folder: Path) -> Path:
    """The records of pass 2 as ``datasets.save_to_disk`` lays them out."""
    folder.mkdir()
    name = "data-00000-of-00001.arrow"
    with pa.OSFile(str(folder / name), "wb") as out, pa.ipc.new_stream(out, got.schema) as writer:
        for shard in got.plan.shards:
            for block in open_shard(shard, got.plan.options, got.types):
                writer.write_batch(block.batch)
    features = json.loads(got.schema.metadata[b"huggingface"])["info"]["features"]
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    (folder / "state.json").write_text(
        json.dumps(
            {
                "_data_files": [{"filename": name}],
                "_fingerprint": "0",
                "_format_columns": None,
                "_format_kwargs": {},
                "_format_type": None,
                "_output_all_columns": False,
                "_split": None,
            }
        )
    )
    return folder


def test_datasets_reads_what_the_schema_says(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    records = [
        {"content": "hi", "m": [{"role": "user", "content": "x"}], "none": None, "empty": [], "n": 1.5, "t": "a"},
        {"content": [1], "m": [{"role": "user", "content": [{"type": "text"}]}], "n": 2, "b": True, "t": 5},
        {"content": {"k": None}, "m": [], "t": "b"},
    ]
    got = read(write(tmp_path / "a.jsonl", *map(json.dumps, records)))
    loaded = datasets.load_from_disk(str(saved(got, tmp_path / "saved")))
    assert loaded.features == datasets.Features.from_arrow_schema(got.schema)
    rows = list(loaded)
    assert [row["n"] for row in rows] == [1.5, 2.0, None]
    assert [row["t"] for row in rows] == ["a", "5", "b"]
    if hasattr(datasets, "Json"):
        assert [row["content"] for row in rows] == [r["content"] for r in records]
        assert [row["m"] for row in rows] == [r["m"] for r in records]
        assert loaded.features["content"] == datasets.Json()
    again = read(tmp_path / "saved")
    assert again.rows() == got.rows()
    assert again.schema.equals(got.schema)


def test_an_older_datasets_gets_plain_strings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cleanse.sources import features

    monkeypatch.setattr(features.installed, "version", lambda name: "4.0.0")
    json_type.cache_clear()
    try:
        got = read(write(tmp_path / "a.jsonl", '{"a": "x"}', '{"a": ["y"]}'))
        assert got.schema.field("a").type == pa.string()
        assert b"Json" not in got.schema.metadata[b"huggingface"]
        assert [json.loads(row["a"]) for row in got.rows()] == ["x", ["y"]]
    finally:
        monkeypatch.undo()
        json_type.cache_clear()
