"""JSONL: which lines are records, which are not and why, whatever surrounds them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cleanse.records import EventKind

from .reading import read, write

BAD = [
    ("{'a': 1}", EventKind.UNPARSEABLE),
    ('{"a": 1,}', EventKind.UNPARSEABLE),
    ('{"a": 1}{"a": 2}', EventKind.UNPARSEABLE),
    ('{"a": 1} // note', EventKind.UNPARSEABLE),
    ('{"a": "tab\there"}', EventKind.UNPARSEABLE),
    ('{"a": "\\x"}', EventKind.UNPARSEABLE),
    ('{"a": 01}', EventKind.UNPARSEABLE),
    ('{"a": -NaN}', EventKind.UNPARSEABLE),
    ('{"a": "cut', EventKind.UNPARSEABLE),
    ("\x0c", EventKind.UNPARSEABLE),
    ("\0\0\0", EventKind.UNPARSEABLE),
    ("[" * 5000 + "]" * 5000, EventKind.UNPARSEABLE),
    ('{"a": ' + "[" * 5000 + "]" * 5000 + "}", EventKind.UNPARSEABLE),
    ('{"a": 1, "a": 2}', EventKind.DUPLICATE_KEY),
    ('{"a": 1, "\\u0061": 2}', EventKind.DUPLICATE_KEY),
    ('{"a": 1, "n": {"k" : 1, "k" : 1}}', EventKind.DUPLICATE_KEY),
    ('{"a": null, "a": null}', EventKind.DUPLICATE_KEY),
    ("[1, 2]", EventKind.NOT_AN_OBJECT),
    ('"text"', EventKind.NOT_AN_OBJECT),
    ("12", EventKind.NOT_AN_OBJECT),
    ("null", EventKind.NOT_AN_OBJECT),
    ("true", EventKind.NOT_AN_OBJECT),
    ('{"a": 18446744073709551616}', EventKind.NUMBER_OUT_OF_RANGE),
    ('{"a": -9223372036854775809}', EventKind.NUMBER_OUT_OF_RANGE),
    ('{"a": 1e400}', EventKind.NUMBER_OUT_OF_RANGE),
    ('{"a": ' + "9" * 5000 + "}", EventKind.NUMBER_OUT_OF_RANGE),
    ('{"a": 1, "s": "\\udc00"}', EventKind.LONE_SURROGATE),
    ('{"a": 1, "\\ud800": 1}', EventKind.LONE_SURROGATE),
    (b'{"a": 1, "s": "\xff"}', EventKind.INVALID_UTF8),
    (b'{"a": 1, "s": "\xed\xa0\xbd"}', EventKind.INVALID_UTF8),
    (b'{"a": 1, "\xe9": 1}', EventKind.INVALID_UTF8),
    (b"\x80", EventKind.INVALID_UTF8),
]


@pytest.mark.parametrize("first", ['{"a": 1}', '{"a": 1.5}'])
@pytest.mark.parametrize(("bad", "kind"), BAD)
def test_a_bad_line_is_set_apart_with_its_bytes(tmp_path: Path, bad: str | bytes, kind: EventKind, first: str) -> None:
    got = read(write(tmp_path / "a.jsonl", first, bad, '{"a": 3}'))
    assert got.kinds() == {1: kind}
    raw = bad.encode() if isinstance(bad, str) else bad
    assert got.second.strays[0, 1].raw == raw
    assert [r["a"] for r in got.rows()] == [json.loads(first)["a"], 3]
    assert got.schema.names == ["a"]  # a line that is no record shapes no column
    assert all(c.isprintable() for event in got.found(kind) for c in event.detail + event.excerpt)


def test_all_of_them_at_once(tmp_path: Path) -> None:
    lines: list[str | bytes] = []
    for bad, _ in BAD:
        lines += [bad, '{"a": 1}', '{"b": "x"}']
    got = read(write(tmp_path / "a.jsonl", *lines))
    assert got.kinds() == {3 * i: kind for i, (_, kind) in enumerate(BAD)}
    assert len(got.rows()) == 2 * len(BAD)


@pytest.mark.parametrize("tail", [b'{"a": "wei', b'{"a"', b"{", b'{"a": [1, ', b'{"a": "\xe2\x82', b'{"a": tru'])
def test_a_last_line_that_stops_in_the_middle(tmp_path: Path, tail: bytes) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": "x"}\n' + tail)
    got = read(tmp_path / "a.jsonl")
    assert got.kinds() == {1: EventKind.TRUNCATED}
    assert got.second.strays[0, 1].raw == tail


def test_a_last_line_without_line_ending_is_a_record(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": "x"}\n{"a": "y"}')
    assert [r["a"] for r in read(tmp_path / "a.jsonl").rows()] == ["x", "y"]


def test_crlf_and_spaces_around_records(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": "x"}\r\n \t{"a": "y"} \r\n\r\n{"a": "z"}\r')
    got = read(tmp_path / "a.jsonl")
    assert [r["a"] for r in got.rows()] == ["x", "y", "z"]
    assert sorted(got.second.records) == [(0, 0), (0, 1), (0, 3)]
    assert got.second.raw[0, 1] == b' \t{"a": "y"} '
    assert [e.row for e in got.found(EventKind.BLANK_LINES)] == [2]


def test_blank_lines_are_counted_and_number_the_rows(tmp_path: Path) -> None:
    got = read(write(tmp_path / "a.jsonl", "", '{"a": 1}', "", "  ", "\t\r", '{"a": 2}', ""))
    (event,) = got.found(EventKind.BLANK_LINES)
    assert (event.row, event.value) == (0, 5)
    assert sorted(got.second.records) == [(0, 1), (0, 5)]
    assert got.first.facts[0].n_blank == 5
    assert not got.second.strays


@pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_without_records(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    got = read(tmp_path / "a.jsonl")
    assert got.rows() == []
    assert not got.second.strays
    assert got.schema.names == []


def test_bom_in_front_of_a_later_line(tmp_path: Path) -> None:
    got = read(write(tmp_path / "a.jsonl", '{"a": 1}', b'\xef\xbb\xbf{"a": 2}', b'\xef\xbb\xbf {"a": 3'))
    assert [e.row for e in got.found(EventKind.BOM)] == [1, 2]
    assert [r["a"] for r in got.rows()] == [1, 2]
    assert got.second.raw[0, 1] == b'{"a": 2}'
    assert got.second.strays[0, 2].raw == b'\xef\xbb\xbf {"a": 3'


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_not_a_number_is_a_record_with_an_event(tmp_path: Path, literal: str) -> None:
    got = read(write(tmp_path / "a.jsonl", '{"a": 1.5}', f'{{"a": {literal}, "b": ["x"]}}', '{"a": 2}'))
    (event,) = got.found(EventKind.NOT_A_NUMBER)
    assert (event.row, event.field) == (1, "a")
    assert str(got.rows()[1]["a"]) == str(float(literal))
    nested = read(write(tmp_path / "b.jsonl", f'{{"a": [{{"b": [1, {literal}]}}]}}', '{"a": null}'))
    assert [(e.row, e.field) for e in nested.found(EventKind.NOT_A_NUMBER)] == [(0, "a[0].b[1]")]


def test_records_without_keys(tmp_path: Path) -> None:
    got = read(write(tmp_path / "a.jsonl", "{}", "{}", "[]"))
    assert got.rows() == [{}, {}]
    assert got.kinds() == {2: EventKind.NOT_AN_OBJECT}
    got = read(write(tmp_path / "b.jsonl", "{}", '{"a": 1}', "{}"))
    assert got.rows() == [{"a": None}, {"a": 1}, {"a": None}]


def test_dates_stay_text_and_odd_names_stay_names(tmp_path: Path) -> None:
    lines = ['{"": "2020-01-01", "a.b": "2020-01-01T00:00:00Z", "\\u0000": "x"}'] * 3
    assert (
        read(write(tmp_path / "a.jsonl", *lines)).rows()
        == [{"": "2020-01-01", "a.b": "2020-01-01T00:00:00Z", "\0": "x"}] * 3
    )


@pytest.mark.parametrize("block_bytes", [1 << 10, 1 << 20])
def test_an_oversized_record_is_kept_by_reference(tmp_path: Path, block_bytes: int) -> None:
    big = b'{"a": "' + b"y" * 50_000 + b'"}'
    path = write(tmp_path / "a.jsonl", '{"a": "1"}', big, '{"a": "2"}', big + b"\r", '{"a": "3"}')
    got = read(path, max_record_bytes=20_000, block_bytes=block_bytes)
    first, second = got.found(EventKind.TOO_LARGE)
    assert (first.row, second.row) == (1, 3)
    assert first.value == second.value == len(big)
    assert got.second.strays[0, 1].raw is None
    assert hashlib.sha256(big).hexdigest() in first.detail
    start, stop = (int(part) for part in first.detail.split("bytes ")[1].split(" of")[0].split(" to "))
    assert path.read_bytes()[start:stop] == big
    assert [r["a"] for r in got.rows()] == ["1", "2", "3"]


def test_the_limit_is_on_the_record_without_its_line_ending(tmp_path: Path) -> None:
    text = b'{"a": "12345"}'
    for ending in (b"\n", b"\r\n"):
        path = write(tmp_path / "a.jsonl", text, text, end=ending)
        assert read(path, max_record_bytes=len(text)).kinds() == {}
        assert set(read(path, max_record_bytes=len(text) - 1).kinds().values()) == {EventKind.TOO_LARGE}


def test_a_long_line_belongs_to_the_shard_in_which_it_begins(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": "0"}', '{"a": "' + "y" * 10_000 + '"}', '{"a": "2"}')
    got = read(path, shard_bytes=100, block_bytes=64)
    assert len(got.plan.shards) > 90
    assert [len(r["a"]) for r in got.rows()] == [1, 10_000, 1]
    assert sum(facts.n_records for facts in got.first.facts) == 3


def test_a_column_that_comes_late(tmp_path: Path) -> None:
    lines = ['{"a": "x"}'] * 1500 + ['{"a": "x", "late": {"k": 1}}'] * 2
    for shard_bytes in (1 << 26, 4000):
        got = read(write(tmp_path / "a.jsonl", *lines), shard_bytes=shard_bytes)
        (event,) = got.found(EventKind.LATE_COLUMN)
        assert (event.row, event.field, event.value) == (1500, "late", 1500)
    got = read(write(tmp_path / "b.jsonl", *lines[600:]))
    assert got.found(EventKind.LATE_COLUMN) == []


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"b": ', "}")])
def test_a_record_nested_beyond_reason_is_set_apart_and_the_others_stay(
    tmp_path: Path, opening: str, closing: str
) -> None:
    lines = [f'{{"a": "x", "n": {opening * levels}1{closing * levels}}}' for levels in (199, 200, 300, 500, 990)]
    got = read(write(tmp_path / "a.jsonl", '{"a": "first"}', *lines, '{"a": "last"}'))
    assert [(e.row, e.detail) for e in got.found(EventKind.UNPARSEABLE)] == [
        (row, "nested more than 200 levels deep") for row in (2, 3, 4, 5)
    ]
    assert len(got.second.strays) == 4


def test_many_columns_are_read_as_columns(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(6000)]  # far more than the keys of a struct
    got = read(write(tmp_path / "a.jsonl", json.dumps(dict.fromkeys(names, "x")), '{"c0": "y"}'))
    assert got.schema.names == names
    assert not got.second.strays
