"""JSON that is not one record per line: arrays, pretty-printed objects, one value after the other."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from cleanse.records import EventKind

from .reading import read, write
from .test_shards import GROUPS_OF_RECORDS, QUIET, holds, same

RECORDS = [{"a": "x, [y] {z} \\", "b": [1, {"c": '"'}]}, {"a": "\n", "b": []}, {"a": None, "b": [2]}]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(RECORDS),
        json.dumps(RECORDS, indent=2),
        "\ufeff" + json.dumps(RECORDS, indent=2),
        "\n\n".join(json.dumps(r, indent=1) for r in RECORDS),
        " ".join(json.dumps(r) for r in RECORDS),
        ",\n".join(json.dumps(r) for r in RECORDS),
        "\n".join(json.dumps(r) for r in RECORDS),
        "\r".join(json.dumps(r) for r in RECORDS),
    ],
)
@pytest.mark.parametrize("block_bytes", [7, 1 << 20])
def test_every_layout_gives_the_same_records(tmp_path: Path, text: str, block_bytes: int) -> None:
    (tmp_path / "a.json").write_text(text, newline="")
    got = read(tmp_path / "a.json", block_bytes=block_bytes)
    assert [{"a": row["a"], "b": [json.loads(v) for v in row["b"]]} for row in got.rows()] == RECORDS
    assert sorted(got.second.records) == [(0, 0), (0, 1), (0, 2)]
    assert [json.loads(got.second.raw[0, i]) for i in range(3)] == RECORDS
    assert len(got.found(EventKind.BOM)) == text.startswith("\ufeff")


def test_jsonl_that_holds_an_array_is_an_array(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(RECORDS, indent=1))
    assert len(read(tmp_path / "a.jsonl").rows()) == 3


def test_bad_elements_are_set_apart(tmp_path: Path) -> None:
    parts = ['{"a": 1}', '{"a": 1, "a": 2}', "12", '"text"', "[1]", "nonsense", "{'a': 2}", '{"a": 3}']
    (tmp_path / "a.json").write_bytes(b"[" + ", ".join(parts).encode() + b', {"a": "\xff"}, {"a": "\xfe"}]')
    for block_bytes in (5, 1 << 20):
        got = read(tmp_path / "a.json", block_bytes=block_bytes)
        assert got.kinds() == {
            1: EventKind.DUPLICATE_KEY,
            2: EventKind.NOT_AN_OBJECT,
            3: EventKind.NOT_AN_OBJECT,
            4: EventKind.NOT_AN_OBJECT,
            5: EventKind.UNPARSEABLE,
            6: EventKind.UNPARSEABLE,
            8: EventKind.INVALID_UTF8,
            9: EventKind.INVALID_UTF8,
        }
        assert {row: got.second.strays[0, row].raw for row in range(1, 7)} == {
            i: parts[i].encode() for i in range(1, 7)
        }
        assert [row["a"] for row in got.rows()] == [1, 3]


def test_an_array_that_stops_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"a": 1}, {"a": 2}, {"a": [3')
    got = read(tmp_path / "a.json")
    assert got.kinds() == {2: EventKind.TRUNCATED}
    assert got.second.strays[0, 2].raw == b'{"a": [3'
    assert [row["a"] for row in got.rows()] == [1, 2]


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_an_oversized_element_is_kept_by_reference(tmp_path: Path, block_bytes: int) -> None:
    big = json.dumps({"a": "]}" * 5000})
    (tmp_path / "a.json").write_text(f'[{{"a": "1"}}, {big}, {{"a": "2"}}, {{"a": "3"}}]')
    got = read(tmp_path / "a.json", max_record_bytes=500, block_bytes=block_bytes)
    (event,) = got.found(EventKind.TOO_LARGE)
    assert (event.row, event.value) == (1, len(big))
    assert hashlib.sha256(big.encode()).hexdigest() in event.detail
    start, stop = (int(part) for part in event.detail.split("bytes ")[1].split(" of")[0].split(" to "))
    assert (tmp_path / "a.json").read_text()[start:stop] == big
    assert [row["a"] for row in got.rows()] == ["1", "2", "3"]


@QUIET
@given(records=GROUPS_OF_RECORDS)
def test_any_blocks_give_the_same(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(records, indent=1), newline="")
    whole = read(path)
    same(whole, read(path, block_bytes=13))
    lines = read(write(tmp_path / "b.jsonl", *map(json.dumps, records)))
    assert repr(lines.rows()) == repr(whole.rows())
    changed = {event.row for event in whole.found(EventKind.MIXED_TYPE) + whole.found(EventKind.NOT_A_NUMBER)}
    for (_, row), made in whole.second.records.items():
        assert row in changed or all(holds(made[name], v) for name, v in records[row].items())


def test_many_small_values_cross_the_index_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleanse.sources.spans.MAX_LINES", 3)
    for n in (2, 3, 4, 6, 7):
        (tmp_path / "a.json").write_text(json.dumps([{"a": i} for i in range(n)]))
        assert [row["a"] for row in read(tmp_path / "a.json").rows()] == list(range(n))
        (tmp_path / "b.csv").write_text("a\r\n" + "\r\n".join(map(str, range(n))))
        assert [row["a"] for row in read(tmp_path / "b.csv").rows()] == list(range(n))
