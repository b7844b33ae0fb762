"""CSV: every value as it is written, every row accounted for."""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cleanse.records import EventKind
from cleanse.sources import SourceError

from .reading import read, write
from .test_shards import QUIET, same


def test_numbers_keep_their_text_unless_all_are_canonical(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "zip,n,x,mixed,big,empty\n007,7,0.5,1,9007199254740993,\n10115,-8,2.25,x,1.5,\n1,0,3,2,1,\n"
    )
    got = read(tmp_path / "a.csv")
    kinds = {column.name: column.type for column in got.schema}
    assert kinds == {
        "zip": pa.string(),
        "n": pa.int64(),
        "x": pa.float64(),
        "mixed": pa.string(),
        "big": pa.string(),
        "empty": pa.string(),
    }
    assert got.rows()[0] == {"zip": "007", "n": 7, "x": 0.5, "mixed": "1", "big": "9007199254740993", "empty": ""}
    assert got.first.records[0, 1]["n"] == "-8"


@pytest.mark.parametrize("text", ["1e5", "+1", "1.0e3", " 1", "1_000", "0x10", "NaN", "-0", "1.50", "01.5", ".5", "5."])
def test_what_would_not_read_back_the_same_stays_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(f"a\n{text}\n")
    assert read(tmp_path / "a.csv").rows() == [{"a": text}]


@pytest.mark.parametrize("literal", ["None", "NA", "nan", "NULL", "null", "N/A"])
def test_null_literals_stay_text_with_an_event(tmp_path: Path, literal: str) -> None:
    (tmp_path / "a.csv").write_text(f"a,b\nx,y\n{literal},z\n")
    got = read(tmp_path / "a.csv")
    assert got.rows()[1] == {"a": literal, "b": "z"}
    assert [(e.row, e.field) for e in got.found(EventKind.NULL_LITERAL)] == [(1, "a")]


def test_rows_of_other_lengths_and_bytes_are_set_apart(tmp_path: Path) -> None:
    rows = [b"a,b", b"1,2", b"1", b"1,2,3", b"", b"\xff,2", b'"x\ny",z']
    got = read(write(tmp_path / "a.csv", *rows))
    assert got.kinds() == {
        1: EventKind.WRONG_COLUMN_COUNT,
        2: EventKind.WRONG_COLUMN_COUNT,
        4: EventKind.INVALID_UTF8,
    }
    assert got.second.strays[0, 2].raw == b"1,2,3"
    assert got.second.strays[0, 2].event.detail == "3 fields where the header has 2"
    assert [e.row for e in got.found(EventKind.BLANK_LINES)] == [3]
    assert got.rows() == [{"a": "1", "b": "2"}, {"a": "x\ny", "b": "z"}]


def test_a_quote_that_is_never_closed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n1,2\n3,"open\n5,6\n')
    got = read(tmp_path / "a.csv")
    assert got.kinds() == {1: EventKind.TRUNCATED}
    assert got.second.strays[0, 1].raw == b'3,"open\n5,6\n'


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_line_endings(tmp_path: Path, end: str, last: bool) -> None:
    text = end.join(["a,b", '1,"x"', '2,"y""z"']) + (end if last else "")
    (tmp_path / "a.csv").write_text(text, newline="")
    for block_bytes in (1, 2, 3, 1 << 20):
        got = read(tmp_path / "a.csv", block_bytes=block_bytes)
        assert got.rows() == [{"a": 1, "b": "x"}, {"a": 2, "b": 'y"z'}]
        assert got.second.raw[0, 1] == b'2,"y""z"'


def test_tsv_semicolons_and_bom(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n1,5\tx\n")
    assert read(tmp_path / "a.tsv").rows() == [{"a": "1,5", "b": "x"}]
    (tmp_path / "b.csv").write_text("\ufeffa;b\n1,5;x\n")
    got = read(tmp_path / "b.csv")
    assert got.rows() == [{"a": "1,5", "b": "x"}]
    assert [e.row for e in got.found(EventKind.BOM)] == [0]


def test_names_are_made_distinct(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,a,,b\n1,2,3,4\n")
    assert read(tmp_path / "a.csv").rows() == [{"a": 1, "a.1": 2, "column_2": 3, "b": 4}]


def test_without_rows_or_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    got = read(tmp_path / "a.csv")
    assert got.rows() == []
    assert got.schema.names == ["a", "b"]
    (tmp_path / "b.csv").write_text("")
    assert read(tmp_path / "b.csv").rows() == []
    (tmp_path / "c.csv").write_bytes(b"\xff\xfa,b\n1,2\n")
    with pytest.raises(SourceError, match="header"):
        read(tmp_path / "c.csv")


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_an_oversized_row_is_kept_by_reference(tmp_path: Path, block_bytes: int) -> None:
    big = b'"' + b"y\n" * 5000 + b'",z'
    got = read(write(tmp_path / "a.csv", b"a,b", b"1,2", big, b"3,4"), max_record_bytes=500, block_bytes=block_bytes)
    (event,) = got.found(EventKind.TOO_LARGE)
    assert (event.row, event.value) == (1, len(big))
    assert hashlib.sha256(big).hexdigest() in event.detail
    assert [row["b"] for row in got.rows()] == [2, 4]


CELLS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('",\n\r\t ;'), max_size=5) | st.sampled_from(
    ["1", "-2", "0.5", "None", "007"]
)


@QUIET
@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=8), end=st.sampled_from(["\n", "\r\n"]))
def test_what_the_csv_module_wrote_is_read_back(tmp_path: Path, rows: list[tuple[str, str]], end: str) -> None:
    # Where lines end with a line feed, Python 3.11 leaves a carriage return unquoted: such a file says something else.
    assume(end == "\r\n" or not any("\r" in cell for row in rows for cell in row))
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=end, quoting=csv.QUOTE_MINIMAL)
    writer.writerows([("a,b", "c"), *rows])
    (tmp_path / "a.csv").write_bytes(out.getvalue().encode())
    whole = read(tmp_path / "a.csv")
    assert [(r["a,b"], r["c"]) for r in whole.first.records.values()] == rows
    for made, row in zip(whole.second.records.values(), rows, strict=True):
        for value, text in zip(made.values(), row, strict=True):
            assert str(value) == text or (isinstance(value, float) and value == float(text))
    same(whole, read(tmp_path / "a.csv", block_bytes=5))
