"""The order of turns, told without a tokenizer."""

import cleanse.rules  # noqa: F401 - registers the measures
import numpy as np
import pyarrow as pa
import pytest

from cleanse import measures
from cleanse.formats import detect, view
from cleanse.rulepacks import load_packs


def turns(*roles, **more):
    return {"messages": [{"role": role, "content": f"text {i}", **more} for i, role in enumerate(roles)]}


def seen(rows):
    return view(detect(rows), pa.RecordBatch.from_pylist(rows))


def values(name, rows):
    found = measures.get(name).compute(seen(rows).texts)
    return found[~np.isnan(found)].tolist()


@pytest.mark.parametrize(
    ("roles", "breaks", "unanswered"),
    [
        (["user", "assistant"], 0, 0),
        (["system", "user", "assistant", "user", "assistant"], 0, 0),
        (["user", "user", "assistant"], 1, 0),  # trait 5
        (["user", "assistant", "user", "user"], 1, 1),  # trait 6
        (["human", "gpt", "gpt", "gpt"], 2, 0),
        (["user", "assistant", "tool", "tool", "assistant"], 0, 0),
        (["user"], 0, 1),
    ],
    ids=str,
)
def test_order_of_turns(roles, breaks, unanswered):
    rows = [turns("user", "assistant"), turns(*roles), turns("user", "assistant")]
    assert values("turns_out_of_order", rows) == [0, breaks, 0]
    assert values("unanswered_turns", rows) == [0, unanswered, 0]


def test_a_tool_call_may_be_followed_by_an_answer():
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    row = turns("user", "assistant")
    row["messages"].insert(1, call)
    assert values("turns_out_of_order", [row]) == [0]


def test_both_sides_of_a_pair_are_conversations_of_their_own():
    side = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    rows = [{"chosen": side, "rejected": [*side, side[0], side[0]]}]
    assert values("turns_out_of_order", rows) == [1]
    assert values("unanswered_turns", rows) == [1]


def test_formats_without_turns_have_no_order():
    rows = [{"instruction": "do", "input": "x", "output": "y"}]
    assert np.isnan(measures.get("turns_out_of_order").compute(seen(rows).texts)).all()


def test_findings_name_the_turns():
    rules = load_packs()
    found = seen([turns("user", "assistant"), turns("user", "assistant", "user", "user")])
    said = {e.rule.id: (e.record, e.message) for e in rules.explain(rules.evaluate(found.texts), found)}
    assert said["trainer.role-order"][0] == 1
    assert "two 'user' turns in a row at 2 and 3: merge them" in said["trainer.role-order"][1]
    assert "turn 3 is the last, and it is 'user'" in said["trainer.unanswered"][1]
