from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest

import cleanse
from cleanse.blocks import RawLines
from cleanse.json_lines import lines
from cleanse.mending import Mended, Wanted, mend

TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def upper(text: str, rules: list[str]) -> str:
    for rule in rules:
        text = text.upper() if rule == "up" else text + "!"
    return text


def raw(texts: list[bytes]) -> RawLines:
    joined = b"".join(text + b"\r\n" for text in texts)
    ends = np.cumsum([len(text) + 2 for text in texts]) - 2
    starts = ends - [len(text) for text in texts]
    return RawLines(np.frombuffer(joined, np.uint8), starts, ends)


def test_only_the_named_fields_change() -> None:
    rows = [
        {
            "text": "one",
            "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}],
            "n": 1,
        },
        {"text": "two", "messages": None, "n": None},
        {"text": None, "messages": [], "n": 3},
    ]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([("text", pa.string()), ("messages", TURNS), ("n", pa.int64())]))
    wanted = [
        Wanted(0, "messages[1].content", "up"),
        Wanted(1, "text", "up"),
        Wanted(1, "text", "bang"),
        Wanted(1, "text", "up"),
    ]
    mended = mend(batch, wanted, upper)
    rows[0]["messages"][1]["content"] = "YO"
    rows[1]["text"] = "TWO!"
    assert mended.batch.to_pylist() == rows
    assert mended.batch.schema == batch.schema
    assert mended.edits == {0: {"messages[1].content": "YO"}, 1: {"text": "TWO!"}}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.json_()], ids=str)
def test_text_inside_json_columns_is_mended_there(kind: pa.DataType) -> None:
    column = pa.array(['{"a": ["x", "y"]}', None, '"z"'], kind)
    mended = mend(pa.record_batch([column], ["c"]), [Wanted(0, "c.a[1]", "up")], upper)
    assert json.loads(mended.batch.column("c")[0].as_py()) == {"a": ["x", "Y"]}
    assert mended.batch.column("c").type == kind
    assert mended.batch.column("c").to_pylist()[1:] == [None, '"z"']


def test_a_number_measured_as_text_is_left_alone() -> None:
    batch = pa.RecordBatch.from_pylist([{"n": 12}])
    mended = mend(batch, [Wanted(0, "n", "bang")], upper)
    assert mended.batch.equals(batch)
    assert mended.edits == {}


def test_lines_come_as_they_were_and_edits_touch_only_their_place() -> None:
    texts = [
        b'{ "a":"x" , "b" : 1.50 }',
        b'{"a": "\\u00e9", "deep": {"t": [1, "q"]}}',
        b'{"a":"gone"}',
        b'{"a": NaN, "t": "w"}',
    ]
    mended = Mended(pa.RecordBatch.from_pylist([{}] * 4), {1: {"deep.t[1]": "Q"}, 3: {"t": "W\u202e"}})
    written = b"".join(lines(mended, np.array([True, True, False, True]), raw(texts)))
    first, second, third = written.splitlines()
    assert first == texts[0]
    assert json.loads(second) == {"a": "\u00e9", "deep": {"t": [1, "Q"]}}
    assert third == '{"a": NaN, "t": "W\u202e"}'.encode()


def test_values_over_several_lines_become_one_line_each() -> None:
    texts = [b'{"a": 1}', b'{\n  "a": [1,\n 2]\n}']
    written = b"".join(lines(Mended(pa.RecordBatch.from_pylist([{}] * 2), {}), np.array([True, True]), raw(texts)))
    assert written == b'{"a": 1}\n{"a":[1,2]}\n'


def test_binary_inputs_become_json_by_value() -> None:
    import datetime as dt
    from decimal import Decimal

    batch = pa.record_batch(
        {
            "b": pa.array([b"\xff"]),
            "j": pa.array(['{"k":[1,null]}'], pa.json_()),
            "d": pa.array([Decimal("1.10")]),
            "t": pa.array([dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc)]),
        }
    )
    written = b"".join(lines(Mended(batch, {}), np.array([True]), None))
    assert json.loads(written) == {"b": "/w==", "j": {"k": [1, None]}, "d": "1.10", "t": "2024-01-02T00:00:00+00:00"}


def test_nothing_kept_is_nothing_written() -> None:
    assert list(lines(Mended(pa.RecordBatch.from_pylist([{}]), {}), np.array([False]), None)) == []


def test_mending_reaches_into_columns_of_mixed_kinds(tmp_path: Path) -> None:
    def talk(content: Any) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": content}]}

    parts = [{"type": "text", "text": "Beside\u200b the ri\u200bver."}]
    rows = [talk(parts), talk('At the\u200b "old\u200b" mill.'), talk("Left\u202eright."), talk("Beside the bridge.")]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "d.jsonl").write_text("\n".join([*lines, '{"messages": [']) + "\n")
    options = {"probe": "none", "corpus": False, "workers": 1, "emit": ("arrow", "jsonl")}
    result = cleanse.scan(tmp_path / "d.jsonl", tmp_path / "o", **options)
    wanted = [talk([{"type": "text", "text": "Beside the river."}]), talk('At the "old" mill.'), rows[3]]
    assert result.load_clean().to_list() == wanted
    assert [json.loads(line) for line in (tmp_path / "o" / "clean.jsonl").read_text().splitlines()] == wanted
    # A released record is written from its values: JSON text inside them is JSON again.
    released = cleanse.release(tmp_path / "o", ids=[f"{tmp_path / 'd.jsonl'}:2"]).result
    wanted.insert(2, rows[2])
    assert released.load_clean().to_list() == wanted
    assert [json.loads(line) for line in (tmp_path / "o" / "clean.jsonl").read_text().splitlines()] == wanted
    # The filter and its repair say the same, in a dataset and in a stream.
    data = datasets.Dataset.from_list(rows[:2] + rows[3:], on_mixed_types="use_json")
    for made in (data, data.to_iterable_dataset()):
        assert list(made.map(cleanse.Filter().repair, batched=True)) == [*wanted[:2], rows[3]]
