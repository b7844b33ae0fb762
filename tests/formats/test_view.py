"""The view of every format, over every Arrow type in which the same data may come."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanse.formats import detect, get_text, replace_text, view
from cleanse.records import Role


def batch_of(rows):
    return pa.RecordBatch.from_pylist(rows)


def as_json(rows, column):
    """The same rows with one column as Arrow JSON text."""
    texts = [None if r.get(column) is None else json.dumps(r[column]) for r in rows]
    rest = pa.RecordBatch.from_pylist([{k: v for k, v in r.items() if k != column} for r in rows])
    return pa.RecordBatch.from_arrays([*rest.columns, pa.array(texts, pa.json_())], names=[*rest.schema.names, column])


def segments(v):
    t = v.texts
    return [
        (int(t.record[i]), v.field(i), None if t.is_null[i] else t.text(i), Role(t.role[i]), bool(t.supervised[i]))
        for i in range(len(t))
    ]


def seen(rows, batch=None, **how):
    return segments(view(detect(rows, **how), batch_of(rows) if batch is None else batch))


def test_alpaca_leaves_empty_input_out_and_keeps_null_output():
    rows = [
        {"instruction": "do", "input": "", "output": "done"},
        {"instruction": "add", "input": "1 2", "output": None},
        {"instruction": "", "input": None, "output": ""},
    ]
    assert seen(rows) == [
        (0, "instruction", "do", Role.USER, False),
        (0, "output", "done", Role.ASSISTANT, True),
        (1, "instruction", "add", Role.USER, False),
        (1, "input", "1 2", Role.USER, False),
        (1, "output", None, Role.ASSISTANT, True),
        (2, "instruction", "", Role.USER, False),
        (2, "output", "", Role.ASSISTANT, True),
    ]


CALL = {"id": "c1", "type": "function", "function": {"name": "sum", "arguments": '{"a": 1}'}}
ODD_TURNS = [
    {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]},
    {
        "messages": [
            {"role": "user", "content": "2+2"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "4", "tool_call_id": "c1"},
            {"role": "assistant", "content": "four", "weight": 0},
            {"role": "model", "content": "four", "weight": 1},
        ]
    },
    {"messages": [{"role": "user", "content": None}, {"role": "function_response", "content": ""}]},
    {"messages": []},
    {"messages": None},
]
ODD_SEEN = [
    (0, "messages[0].content", "s", Role.SYSTEM, False),
    (0, "messages[1].content", "q", Role.USER, False),
    (1, "messages[0].content", "2+2", Role.USER, False),
    (1, "messages[1].tool_calls[0].function.name", "sum", Role.ASSISTANT, True),
    (1, "messages[1].tool_calls[0].function.arguments", '{"a": 1}', Role.ASSISTANT, True),
    (1, "messages[2].content", "4", Role.TOOL, False),
    (1, "messages[3].content", "four", Role.ASSISTANT, False),
    (1, "messages[4].content", "four", Role.ASSISTANT, True),
    (2, "messages[0].content", None, Role.USER, False),
    (2, "messages[1].content", "", Role.OTHER, False),
    (3, "messages", None, Role.OTHER, True),
    (4, "messages", None, Role.OTHER, True),
]


@pytest.mark.parametrize("encode", [batch_of, lambda rows: as_json(rows, "messages")], ids=["typed", "json"])
def test_messages_with_calls_weights_nulls_and_unknown_roles(encode):
    v = view(detect(ODD_TURNS), encode(ODD_TURNS))
    assert segments(v) == ODD_SEEN
    turns = v.texts.memo["turns"]
    assert turns.record.tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2]
    assert turns.name.to_pylist()[-1] == "function_response"
    assert turns.calls.tolist() == [False] * 3 + [True] + [False] * 5
    assert turns.weighted.tolist() == [True] * 5 + [False] + [True] * 3


def test_messages_as_json_text_in_a_string_column():
    rows = [{"messages": json.dumps(r["messages"])} for r in ODD_TURNS[:3]] + [{"messages": "not json"}]
    found = seen(rows)
    assert found[:10] == ODD_SEEN[:10]
    assert found[10] == (3, "messages", "not json", Role.OTHER, False)


def test_content_as_parts_and_as_a_string_in_one_column():
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://x"}}]
    rows = [{"messages": [{"role": "user", "content": parts}]}, {"messages": [{"role": "user", "content": "hi"}]}]
    content = pa.array([json.dumps(parts), json.dumps("hi")], pa.json_())
    turns = pa.StructArray.from_arrays([pa.array(["user"] * 2), content], names=["role", "content"])
    mixed_inside = pa.record_batch({"messages": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), turns)})
    expected = [
        (0, "messages[0].content[0].text", "look", Role.USER, False),
        (1, "messages[0].content", "hi", Role.USER, False),
    ]
    assert seen(rows, mixed_inside) == expected
    assert seen(rows, as_json(rows, "messages")) == expected
    assert seen(rows[:1]) == expected[:1]


def test_sharegpt_names_are_translated():
    rows = [
        {
            "system": "s",
            "conversations": [
                {"from": "human", "value": "q"},
                {"from": "function_call", "value": "f()"},
                {"from": "observation", "value": "r"},
                {"from": "gpt", "value": "a"},
            ],
        }
    ]
    assert [s[3:] for s in seen(rows)] == [
        (Role.SYSTEM, False),
        (Role.USER, False),
        (Role.ASSISTANT, True),
        (Role.TOOL, False),
        (Role.ASSISTANT, True),
    ]


def test_preference_pairs_flat_and_conversational():
    flat = [{"prompt": "q", "chosen": "a", "rejected": None}]
    assert seen(flat) == [
        (0, "prompt", "q", Role.USER, False),
        (0, "chosen", "a", Role.CHOSEN, True),
        (0, "rejected", None, Role.REJECTED, True),
    ]
    ask = {"role": "user", "content": "q"}
    turns = [{"chosen": [ask, {"role": "assistant", "content": c}], "rejected": [ask]} for c in "ab"]
    v = view(detect(turns), batch_of(turns))
    assert segments(v)[:3] == [
        (0, "chosen[0].content", "q", Role.USER, False),
        (0, "chosen[1].content", "a", Role.CHOSEN, True),
        (0, "rejected[0].content", "q", Role.USER, False),
    ]
    joined = v.texts.memo["turns"]
    assert joined.columns == ("chosen", "rejected")
    assert joined.column.tolist() == [0, 0, 1, 0, 0, 1]
    assert joined.record.tolist() == [0, 0, 0, 1, 1, 1]


def test_history_alternates_between_user_and_assistant():
    rows = [
        {"query": "q2", "response": "a2", "history": [["q0", "a0"], ["q1", "a1"]]},
        {"query": "q", "response": "a", "history": []},
        {"query": "q", "response": "a", "history": None},
    ]
    assert seen(rows)[:6] == [
        (0, "history[0][0]", "q0", Role.USER, False),
        (0, "history[0][1]", "a0", Role.ASSISTANT, True),
        (0, "history[1][0]", "q1", Role.USER, False),
        (0, "history[1][1]", "a1", Role.ASSISTANT, True),
        (0, "query", "q2", Role.USER, False),
        (0, "response", "a2", Role.ASSISTANT, True),
    ]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
@pytest.mark.parametrize("cut", [slice(0, 4), slice(1, 3), slice(4, 4)], ids=str)
def test_string_types_and_slices(kind, cut):
    texts = ["a", None, "\u00e4\U0001f600", ""]
    array = pa.array(texts).cast(kind)
    batch = pa.record_batch({"text": array}).slice(cut.start, cut.stop - cut.start)
    v = view(detect([{"text": "a"}]), batch)
    assert [s[2] for s in segments(v)] == texts[cut]
    assert v.texts.offsets[0] == 0
    assert v.texts.offsets[-1] == len(v.texts.data)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None]), ["1", None]),
        (pa.array([True, None]), ["true", None]),
        (pa.array([1.0, None]), ["1.0", None]),
        (pa.nulls(2), [None, None]),
        (pa.array([b"\xff", b""]), [None, None]),
        (pa.array([["x", "y"], []]), ["x", "y", None]),
        (pa.array([{"a": "x", "n": 1}, None]), ["x", None]),
        (pa.array(["1984", '"s"'], pa.json_()), ["1984", "s"]),
        (pa.array(["{broken", "[1, null]"], pa.json_()), ["{broken", "1"]),
    ],
    ids=lambda v: str(getattr(v, "type", "")),
)
def test_whatever_stands_where_text_was_expected(values, expected):
    v = view(detect([{"text": "a"}]), pa.record_batch({"text": values}))
    assert [s[2] for s in segments(v)] == expected


def test_a_missing_column_counts_as_null():
    v = view(detect([{"prompt": "p", "completion": "c"}]), pa.record_batch({"prompt": ["p"], "x": [1]}))
    assert segments(v)[1] == (0, "completion", None, Role.ASSISTANT, True)


def test_odd_column_names_have_paths_too():
    rows = [{"my.text [1]": "a"}]
    v = view(detect(rows, text_column="my.text [1]"), batch_of(rows))
    assert get_text(rows[0], v.field(0)) == "a"


TEXT = st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=6))
TURN = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "odd", None]), "content": TEXT},
    optional={"reasoning_content": TEXT, "weight": st.sampled_from([0, 1, None])},
)
ROWS = st.lists(
    st.fixed_dictionaries({"messages": st.one_of(st.none(), st.lists(TURN, max_size=4))}), min_size=1, max_size=5
)


@settings(max_examples=150, deadline=None)
@given(ROWS)
def test_typed_and_json_columns_give_the_same_view(rows):
    fmt = detect(ODD_TURNS)
    schema = pa.struct(
        [("role", pa.string()), ("content", pa.string()), ("reasoning_content", pa.string()), ("weight", pa.int64())]
    )
    typed = pa.record_batch({"messages": pa.array([r["messages"] for r in rows], pa.list_(schema))})
    by_type, by_json = view(fmt, typed), view(fmt, as_json(rows, "messages"))
    assert segments(by_type) == segments(by_json)
    a, b = by_type.texts.memo["turns"], by_json.texts.memo["turns"]
    for key in ("record", "role", "weighted", "calls"):
        assert np.array_equal(getattr(a, key), getattr(b, key)), key


@settings(max_examples=100, deadline=None)
@given(ROWS, st.text(st.characters(codec="utf-8"), max_size=5))
def test_a_repair_lands_where_the_finding_points(rows, new):
    fmt = detect(ODD_TURNS)
    batch = as_json(rows, "messages")
    v = view(fmt, batch)
    for segment, (record, field, text, *_) in enumerate(segments(v)):
        if text is None:
            continue
        mended = replace_text(batch.slice(record, 1).to_pylist()[0], field, new, batch.schema)
        again = pa.RecordBatch.from_arrays([pa.array([mended["messages"]], pa.json_())], names=["messages"])
        first = int(np.searchsorted(v.texts.record, record))
        found = dict(x[1:3] for x in segments(view(fmt, again)))
        assert found.get(field, "") == new  # an emptied optional text has no segment
        others = [x[1:3] for x in segments(v) if x[0] == record and x[1] != field]
        assert all(found[path] == other for path, other in others), (first, segment)


def test_a_repair_of_a_json_column_that_is_only_a_string():
    batch = pa.record_batch({"output": pa.array(['"bad"', "[1]"], pa.json_())})
    mended = replace_text(batch.to_pylist()[0], "output", "good", batch.schema)
    assert mended == {"output": '"good"'}


def test_replace_text_shares_what_it_does_not_touch():
    row = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "x": [1]}
    mended = replace_text(row, "messages[1].content", "c")
    assert row["messages"][1]["content"] == "b"
    assert mended["messages"][1] == {"role": "assistant", "content": "c"}
    assert mended["x"] is row["x"]
    with pytest.raises(ValueError, match="not a path"):
        replace_text(row, "messages[", "c")
    with pytest.raises(IndexError):
        replace_text(row, "messages[9].content", "c")


def test_evaluation_data_loses_no_text(shared_data):
    rows = [json.loads(line) for line in (shared_data / "clean" / "sft.jsonl").read_bytes().splitlines()[:500]]
    v = view(detect(rows), batch_of(rows))
    assert sum(len((r[c] or "").encode()) for r in rows for c in ("instruction", "input", "output")) == len(
        v.texts.data
    )


def test_mixed_json_in_an_answer_column_is_the_answer():
    rows = [
        {"instruction": "list", "output": ["one", "two"]},
        {"instruction": "say", "output": "three"},
        {"instruction": "talk", "output": [{"role": "assistant", "content": "four"}, "five"]},
    ]
    assert [
        (r, f, t, role, learnt)
        for r, f, t, role, learnt in seen(rows[:2], as_json(rows, "output"))
        if role != Role.USER
    ] == [
        (0, "output[0]", "one", Role.ASSISTANT, True),
        (0, "output[1]", "two", Role.ASSISTANT, True),
        (1, "output", "three", Role.ASSISTANT, True),
        (2, "output[0].content", "four", Role.ASSISTANT, True),
        (2, "output[1]", "five", Role.ASSISTANT, True),
    ]
