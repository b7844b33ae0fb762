"""The traits of real failing data that a reader meets, each with the row it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cleanse.records import EventKind
from cleanse.sources.model import ShardFacts
from cleanse.sources.wholesource import OFFSET_LIMIT, source_events

from .reading import read, write


@pytest.fixture(scope="module")
def reports() -> dict[int, dict[str, Any]]:
    """The inputs as the reports have them (copied: these tests run without the evaluation data too)."""
    return {
        9: {"json_line": '{"text": "smile \\ud83d end"}'},
        10: {"bytes_hex": "7b2274657874223a226974927320666f6f227d0a"},
        11: {"json_line": '{"text": "left\\u0000right"}'},
        14: {"jsonl": ['{"content": "hi"}', '{"content": [{"type": "text", "text": "hi"}]}']},
        15: {"jsonl": ['{"title": "Nineteen"}', '{"title": 1984}']},
        17: {"bytes_hex": "efbbbf7b2261223a7b2278223a317d7d0a7b2261223a7b2279223a327d7d0a"},
        20: {"jsonl": ['{"text": "ok"}', '{"text": null}'], "csv": "text,label\nNone,1"},
        21: {"jsonl": ['{"text": ""}', '{"text": "  \\n"}']},
    }


def test_the_inputs_are_those_of_the_reports(bug_reports: Path, reports: dict[int, dict[str, Any]]) -> None:
    known = {r["id"]: r["input"] for r in map(json.loads, bug_reports.read_text().splitlines())}
    assert {i: known[i] for i in reports} == reports


def test_9_lone_surrogate(tmp_path: Path, reports: Any) -> None:
    got = read(write(tmp_path / "a.jsonl", '{"text": "fine"}', reports[9]["json_line"]))
    (event,) = got.found(EventKind.LONE_SURROGATE)
    assert (event.row, event.field, event.start, event.end) == (1, "text", 6, 7)
    assert event.detail == "text: lone surrogate U+D83D at character 6"
    assert got.second.strays[0, 1].raw == reports[9]["json_line"].encode()
    assert got.rows() == [{"text": "fine"}]


def test_10_cp1252_quote(tmp_path: Path, reports: Any) -> None:
    raw = bytes.fromhex(reports[10]["bytes_hex"])
    (tmp_path / "a.jsonl").write_bytes(b'{"text":"before"}\n' + raw + b'{"text":"after"}\n')
    got = read(tmp_path / "a.jsonl")
    (event,) = got.found(EventKind.INVALID_UTF8)
    assert event.row == 1
    assert event.detail == "byte 0x92 at offset 11; likely windows-1252"
    assert got.second.strays[0, 1].raw == raw.rstrip(b"\n")
    assert [r["text"] for r in got.rows()] == ["before", "after"]


def test_11_nul_is_kept_as_it_is(tmp_path: Path, reports: Any) -> None:
    got = read(write(tmp_path / "a.jsonl", reports[11]["json_line"]))
    assert got.rows() == [{"text": "left\0right"}]
    assert not got.second.strays


def test_14_string_and_list_in_one_column(tmp_path: Path, reports: Any) -> None:
    got = read(write(tmp_path / "a.jsonl", *reports[14]["jsonl"]))
    (event,) = got.found(EventKind.MIXED_TYPE)
    assert (event.row, event.field) == (1, "content")
    assert event.detail == "content: a list where 1 of 2 values are strings; the column is kept as JSON"
    assert [json.loads(r["content"]) for r in got.rows()] == ["hi", [{"type": "text", "text": "hi"}]]


def test_15_number_among_strings(tmp_path: Path, reports: Any) -> None:
    lines = [reports[15]["jsonl"][0]] * 1232 + [reports[15]["jsonl"][1]]
    got = read(write(tmp_path / "a.jsonl", *lines))
    (event,) = got.found(EventKind.MIXED_TYPE)
    assert (event.row, event.field) == (1232, "title")
    assert event.detail == 'title: a number where 1,232 of 1,233 values are strings; 1984 becomes the text "1984"'
    assert got.rows()[-1] == {"title": "1984"}


def test_17_bom_at_the_start(tmp_path: Path, reports: Any) -> None:
    (tmp_path / "a.jsonl").write_bytes(bytes.fromhex(reports[17]["bytes_hex"]))
    got = read(tmp_path / "a.jsonl")
    (event,) = got.found(EventKind.BOM)
    assert event.row == 0
    assert not got.second.strays
    assert got.rows() == [{"a": {"x": 1, "y": None}}, {"a": {"x": None, "y": 2}}]
    assert got.second.raw[0, 0] == b'{"a":{"x":1}}'


def test_19_a_thousand_rows_that_overflow_32_bit_offsets(tmp_path: Path) -> None:
    got = read(write(tmp_path / "a.jsonl", json.dumps({"text": "y" * (5 << 19)}), '{"text": "small"}'))
    assert got.first.facts[0].large_values["text"][0][0] == 0
    size = got.first.facts[0].large_values["text"][0][1]
    assert size >= 5 << 19
    # 1,200 rows of 2.5 MiB, without reading 3 GB: their facts.
    facts = ShardFacts(n_records=1200, large_values={"text": [(row, size) for row in range(1200)]})
    (event,) = source_events(got.plan, [facts])[0]
    assert event.kind is EventKind.OFFSET_RISK
    assert event.value is not None
    assert event.value > OFFSET_LIMIT
    fitting = int(event.detail.split("writer_batch_size <= ")[1].split(" ")[0])
    assert fitting * size <= OFFSET_LIMIT < 1000 * size
    few = ShardFacts(n_records=1200, large_values={"text": [(row * 2, size) for row in range(600)]})
    assert source_events(got.plan, [few])[0] == []


def test_20_null_text_stays_null_and_none_stays_text(tmp_path: Path, reports: Any) -> None:
    got = read(write(tmp_path / "a.jsonl", *reports[20]["jsonl"]))
    assert got.rows() == [{"text": "ok"}, {"text": None}]
    (tmp_path / "b.csv").write_text(reports[20]["csv"])
    got = read(tmp_path / "b.csv")
    (event,) = got.found(EventKind.NULL_LITERAL)
    assert (event.row, event.field, event.excerpt) == (0, "text", "None")
    assert got.rows() == [{"text": "None", "label": 1}]


def test_21_empty_text_is_a_record(tmp_path: Path, reports: Any) -> None:
    got = read(write(tmp_path / "a.jsonl", *reports[21]["jsonl"]))
    assert got.rows() == [{"text": ""}, {"text": "  \n"}]
