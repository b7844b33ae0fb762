"""Which format a head of records is taken for, and what is said when none fits."""

import pickle

import pytest

from cleanse.formats import FORMATS, Format, FormatError, detect

TURNS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
SHARED = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]

CASES = {
    "text": [{"id": 1, "text": "a"}],
    "prompt_completion": [{"prompt": "q", "completion": "a"}],
    "alpaca": [{"instruction": "q", "input": "", "output": "a", "lang": "en"}],
    "messages": [{"messages": TURNS}],
    "sharegpt": [{"conversations": SHARED, "id": "x"}],
    "preference": [{"prompt": "q", "chosen": "a", "rejected": "b"}],
    "kto": [{"prompt": "q", "completion": "a", "label": True}],
    "ms_swift": [{"query": "q", "response": "a", "history": [["q0", "a0"]]}],
    "unknown": [{"id": "7", "headline": "h", "story": "s"}],
}


@pytest.mark.parametrize("name", CASES)
def test_detected_by_columns(name):
    fmt = detect(CASES[name])
    assert fmt.name == name
    assert fmt.describe().startswith(f"{name}: ")


@pytest.mark.parametrize("name", CASES)
def test_survives_pickle_and_json(name):
    fmt = detect(CASES[name])
    assert pickle.loads(pickle.dumps(fmt)) == fmt == Format.from_json(fmt.to_json())


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ([{"prompt": "p", "prompt_id": "1", "messages": TURNS}], "messages"),  # UltraChat
        ([{"prompt": "p", "messages": TURNS, "chosen": TURNS, "rejected": TURNS, "score_chosen": 1.0}], "preference"),
        ([{"conversations": SHARED, "chosen": SHARED[1], "rejected": SHARED[1]}], "preference"),  # LLaMA-Factory
        ([{"messages": TURNS, "rejected_response": "b"}], "messages"),
        ([{"question": "q", "answer": "a #### 4"}], "prompt_completion"),  # GSM8K
        ([{"instruction": "i", "context": "", "response": "r", "category": "qa"}], "alpaca"),  # Dolly
        ([{"messages": '[{"role": "user", "content": "q"}]'}], "messages"),  # JSON text in a CSV cell
        ([{"text": None}, {"text": "later"}], "text"),
        ([{"prompt": "q", "completion": "a", "label": "spam"}], "prompt_completion"),  # label is not a verdict
        ([{"dialog_of_some_kind": TURNS}], "messages"),
        ([{"prompt": TURNS[:1], "completion": TURNS[1:]}], "prompt_completion"),  # TRL, conversational
        ([{"instruction": "q", "output": ["a"]}, {"instruction": "q", "output": "a"}], "alpaca"),
    ],
)
def test_data_sets_seen_in_the_wild(head, name):
    assert detect(head).name == name


def test_text_column_overrides_and_meta_columns_are_left_out():
    head = [{"id": "1", "title": "t", "story": "s", "summary": "u", "lang": "en"}]
    assert detect(head, text_column="summary").describe() == "text: summary"
    assert [p.column for p in detect(head).parts] == ["story", "summary"]


def test_a_format_asked_for_must_fit():
    with pytest.raises(FormatError, match=r"do not fit format alpaca.*'prompt'"):
        detect(CASES["prompt_completion"], name="alpaca")
    with pytest.raises(FormatError, match="no format is called 'alpacca': known are auto, preference"):
        detect(CASES["alpaca"], name="alpacca")
    assert detect(CASES["kto"], name="prompt_completion").name == "prompt_completion"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_be_forced_on_its_own_example(name):
    assert detect(CASES[name], name=name).name == name


def test_nothing_to_measure_names_columns_and_formats():
    with pytest.raises(FormatError, match=r"'price', 'n'.*known formats: .*alpaca.*--text-column"):
        detect([{"price": 1.5, "n": 2}])
    with pytest.raises(FormatError, match="no column 'body'"):
        detect([{"text": "a"}], text_column="body")
    with pytest.raises(FormatError, match="no columns"):
        detect([])


def test_tokenised_data_is_refused_with_what_to_do():
    with pytest.raises(FormatError, match="tokenised already"):
        detect([{"input_ids": [1, 2], "labels": [-100, -100]}])
