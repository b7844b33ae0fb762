"""Records as turns for a chat template."""

import json

import pyarrow as pa

from cleanse.formats import Conversations, conversation, detect


def said(turns):
    return [(t["role"], t["content"]) for t in turns]


def test_alpaca_joins_instruction_and_input_by_a_newline():
    row = {"system": "s", "instruction": "i", "input": "x", "output": "o", "history": [["q", "a"]]}
    found = conversation(detect([row]), row)
    assert said(found.turns) == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", "a"),
        ("user", "i\nx"),
        ("assistant", "o"),
    ]
    assert found.n_prompt == 4
    assert (found.prompt_text, found.answer_text) == ("s\ni\nx", "o")
    without = {**row, "system": None, "input": "", "history": None}
    assert said(conversation(detect([row]), without).turns) == [("user", "i"), ("assistant", "o")]


def test_messages_pass_through_with_their_extra_keys_but_without_nulls_of_merged_structs():
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    rows = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [call]}]},
        {"messages": [{"role": "assistant", "content": "a", "tool_calls": [{"function": {"arguments": {"b": "x"}}}]}]},
    ]
    found = Conversations(detect(rows), pa.RecordBatch.from_pylist(rows))[0]
    assert found.turns == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    assert found.n_prompt == 0
    assert not found.plain


def test_sharegpt_names_become_template_roles_and_unknown_ones_stay():
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}, {"from": "critic", "value": "c"}]
    row = {"conversations": turns}
    assert said(conversation(detect([row]), row).turns) == [("user", "q"), ("assistant", "a"), ("critic", "c")]


def test_pairs_share_their_prompt():
    row = {"prompt": "p", "chosen": "a", "rejected": "b"}
    found = conversation(detect([row]), row)
    assert said(found.turns) == [("user", "p"), ("assistant", "a")]
    assert said(found.rejected) == [("user", "p"), ("assistant", "b")]
    assert (found.prompt_text, found.answer_text, found.rejected_text, found.plain) == ("p", "a", "b", True)


def test_json_columns_and_tools_are_decoded():
    turns = [{"role": "user", "content": [{"type": "text", "text": "q"}]}, {"role": "assistant", "content": "a"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    batch = pa.record_batch({"messages": pa.array([json.dumps(turns)], pa.json_()), "tools": [json.dumps(tools)]})
    found = Conversations(detect([{"messages": turns}]), batch)[0]
    assert found.turns == turns
    assert found.tools == tools


def test_nothing_is_too_odd():
    fmt = detect([{"messages": [{"role": "user", "content": "q"}]}])
    for value in (None, "text", 7, [], [None], ["x", 3], {"role": "user", "content": "q"}, [[{}]]):
        assert isinstance(conversation(fmt, {"messages": value}).turns, list)
