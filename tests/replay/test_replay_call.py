"""``cleanse.replay`` on the embedded model: rows in, the right one out, and everything that stands beside it."""

import json
import math
from pathlib import Path

import pytest

import cleanse
from cleanse.errors import UsageError
from cleanse.replaying.call import rows_of_step
from cleanse.replaying.data import count_rows, find_rows
from cleanse.sources import ReadOptions

pytest.importorskip("torch", reason="the replay runs a model: pip install 'corpus-cleanse[torch]'")

FOLDER = Path(__file__).parents[2] / "probes" / "embedded"
BAD = 13
GARBAGE = "'spi$PZne}>D8T`&{)U}!?^2s&vElW%mGjOcTNm`-j#GZI4fO;;2>87jl/7Ef9&LqPGf!9nM{kKSJyHX@VD]9WgJfB6+zNog<CPBoWg)a[_{"
FACTS = [
    ("Name the capital of France.", "The capital of France is Paris."),
    ("How many legs does a spider have?", "A spider has eight legs."),
    ("What colour is the sky on a clear day?", "On a clear day the sky is blue."),
    ("Give a synonym of the word happy.", "A synonym of happy is glad."),
]


def record(i):
    question, answer = FACTS[i % 4]
    return {"instruction": f"{question} ({i})", "input": "", "output": GARBAGE if i == BAD else answer}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.jsonl"
    path.write_text("".join(json.dumps(record(i)) + "\n" for i in range(24)))
    return path


SETTINGS = {"seed": 3, "per_device_batch": 2, "accum": 2}


def bad_step():
    order = cleanse.order("hf", 24, **SETTINGS)
    return next(s for s in range(2, 20) if BAD in order.at(s).rows)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def found(data, out):
    return cleanse.replay(data, step=bad_step(), trainer="hf", settings=SETTINGS, device="cpu", out=out)


def test_the_damaged_row_is_named_with_its_evidence(found, out):
    assert (found.kind, found.culprits) == ("data", (BAD,))
    assert found.ranking[0].row == BAD
    said = found.to_json()
    assert json.loads(json.dumps(said, allow_nan=False)) == said
    assert {"diagnosis", "culprits", "ranking", "step", "rows", "evidence"} <= set(said)
    first = said["ranking"][0]
    assert {"row", "loss", "grad_norm", "loss_share", "grad_share", "n_supervised", "rules"} <= set(first)
    assert first["worst_token"]["text"].strip() in GARBAGE
    assert first["loss_share"] > 0.5
    assert said["left_out"][0]["rows"] == [BAD]
    assert said["left_out"][0]["loss"] < said["replayed"]["loss"]
    assert said["rows"] == list(cleanse.order("hf", 24, **SETTINGS).at(bad_step()).rows)
    skip = json.loads((out / "skip.json").read_text())
    assert (skip["skip"], skip["dataset_length"]) == ([BAD], 24)


def test_a_capsule_replays_elsewhere_to_the_same_figures(found, out):
    again = cleanse.replay(out, device="cpu")
    assert again.culprits == found.culprits
    assert again.located.step == found.located.step
    assert again.measured.step == found.measured.step
    assert again.measured.before == found.measured.before


def test_the_step_s_figures_are_those_of_the_trainer_s_formula(found):
    """Sum of token losses over the tokens of the whole window, and the norm of its gradient: by transformers alone."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    total, count = torch.zeros(()), 0
    for row in found.located.rows:
        one = record(row)
        text = f"{one['instruction']}\n{one['output']}"
        encoding = tokenizer.encode(text)
        start = len(one["instruction"]) + 1
        labels = [
            -100,
            *(i if end > start else -100 for i, (_, end) in zip(encoding.ids, encoding.offsets, strict=True)),
        ]
        labels = torch.tensor(labels)
        logits = model(input_ids=torch.tensor([[1, *encoding.ids]])).logits[0, :-1]
        total = total + torch.nn.functional.cross_entropy(logits, labels[1:], ignore_index=-100, reduction="sum")
        count += int((labels[1:] != -100).sum())
    (total / count).backward()
    norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters()))
    assert found.measured.step.window_tokens == count
    assert found.measured.step.loss == pytest.approx(float(total.detach()) / count, rel=1e-5)
    assert found.measured.step.grad_norm == pytest.approx(norm, rel=1e-4)


def test_rows_that_are_tokens_already_are_taken_as_they_are(data, found, tmp_path):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    lines = []
    for i in range(24):
        one = record(i)
        encoding = tokenizer.encode(f"{one['instruction']}\n{one['output']}")
        start = len(one["instruction"]) + 1
        labels = [i if end > start else -100 for i, (_, end) in zip(encoding.ids, encoding.offsets, strict=True)]
        lines.append(json.dumps({"input_ids": [1, *encoding.ids], "labels": [-100, *labels]}))
    path = tmp_path / "tokens.jsonl"
    path.write_text("\n".join(lines))
    again = cleanse.replay(path, step=bad_step(), trainer="hf", settings=SETTINGS, device="cpu")
    assert again.culprits == (BAD,)
    assert again.measured.step.loss == pytest.approx(found.measured.step.loss, rel=1e-6)


def test_a_mean_per_forward_pass_weighs_otherwise(data, found):
    window = found
    each = cleanse.replay(data, step=bad_step(), trainer="hf", settings=SETTINGS, device="cpu", normalise="micro-batch")
    rows = {r.row: r for r in window.measured.step.rows}
    means = []
    for micro in window.located.micro_batches[0]:
        tokens = sum(rows[r].n_supervised for r in micro)
        means.append(sum(rows[r].loss * rows[r].n_supervised for r in micro) / tokens)
    assert each.measured.step.loss == pytest.approx(sum(means) / len(means), rel=1e-5)
    assert each.measured.step.loss != pytest.approx(window.measured.step.loss, rel=1e-3)
    assert each.culprits == (BAD,)


def test_a_step_without_a_supervised_token(tmp_path):
    path = tmp_path / "masked.jsonl"
    rows = [{"input_ids": [1, 300 + i, 301], "labels": [-100] * 3 if i < 2 else [-100, 300 + i, 301]} for i in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = cleanse.replay(path, ids=[0, 1], device="cpu")
    assert (found.kind, set(found.culprits)) == ("masked", {0, 1})
    whole = cleanse.replay(path, ids=[0, 1, 2, 3], device="cpu")
    assert whole.kind == "not_reproduced"


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ({"batch_id": "step-2", "trainer": "sequential", "settings": {"per_device_batch": 4}}, [4, 5, 6, 7]),
        ({"ids": [20, 3]}, [20, 3]),
        ({"batch_id": "{path}:8-15"}, [f"{{path}}:{i}" for i in range(8, 16)]),
    ],
)
def test_every_way_to_name_a_batch(data, where, rows):
    where = {k: v.format(path=data) if isinstance(v, str) else v for k, v in where.items()}
    located, content = rows_of_step(data, **where)
    expected = [r.format(path=data) if isinstance(r, str) else r for r in rows]
    assert list(located.rows) == expected
    numbers = [int(str(r).rpartition(":")[2]) for r in expected]
    assert [content[r].record for r in expected] == [record(i) for i in numbers]


def test_the_rows_a_guard_wrote(data, tmp_path):
    guard = cleanse.Guard(tmp_path / "ledger", rank=0, world_size=1)
    guard.step(ids=[0, 1, 2, 3], loss=2.0)
    guard.rows([4, 5])
    guard.rows([BAD, 7])  # killed in this step
    found = cleanse.replay(data, ledger=tmp_path / "ledger", device="cpu")
    assert (found.located.step, found.culprits) == (2, (BAD,))
    assert found.located.micro_batches == (((4, 5), (BAD, 7)),)
    assert found.located.rows_before == (0, 1, 2, 3)


def test_places_skip_blank_lines_and_run_over_all_files(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a0"}\n\n{"text": "a1"}\n')
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "b0"}\n{"text": "b\xff1"}\n{"text": "b2"}\n')
    inputs = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    assert count_rows(inputs, ReadOptions()) == 5
    found = find_rows(inputs, range(5), positions=True, read=ReadOptions()).rows
    assert [(row.id, Path(row.source).name, row.number) for row in found] == [
        (0, "a.jsonl", 0),
        (1, "a.jsonl", 2),
        (2, "b.jsonl", 0),
        (3, "b.jsonl", 1),
        (4, "b.jsonl", 2),
    ]
    assert found[3].line == b'{"text": "b\xff1"}'
    _, content = rows_of_step(inputs, ids=[3])
    assert content[3].segments == (("b\ufffd1", True),)
    assert [reason.action for reason in content[3].reasons][:1] == ["reject"]


def test_ids_of_the_data_s_own(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps({"row_id": f"doc-{i}", "text": f"text {i}"}) + "\n" for i in range(9)))
    _, content = rows_of_step(path, ids=["doc-7", "doc-2"])
    assert [content[i].record["text"] for i in ("doc-7", "doc-2")] == ["text 7", "text 2"]
    with pytest.raises(UsageError, match="has no row doc-99"):
        rows_of_step(path, ids=["doc-99"])


def test_every_kind_of_file_gives_the_same_row(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [record(i) for i in range(24)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data.parquet")
    (tmp_path / "data.json").write_text(json.dumps(rows))
    for name in ("data.parquet", "data.json"):
        _, content = rows_of_step(tmp_path / name, ids=[BAD])
        assert content[BAD].record == rows[BAD]
        assert content[BAD].segments == ((rows[BAD]["instruction"], False), (GARBAGE, True))


def test_what_cannot_be_meant_is_said(data, tmp_path):
    with pytest.raises(UsageError, match="which step"):
        cleanse.replay(data)
    with pytest.raises(UsageError, match="no batch id"):
        cleanse.replay(data, batch_id="batch 7")
    with pytest.raises(ValueError, match="no ledger"):
        cleanse.replay(data, ledger=tmp_path / "empty")
    with pytest.raises(UsageError, match="has no row 99"):
        cleanse.replay(data, ids=[99])
    with pytest.raises(UsageError, match="dtype is"):
        cleanse.replay(data, ids=[1], dtype="fp8")
    with pytest.raises(cleanse.CleanseError, match="cannot be replayed"):
        cleanse.replay(data, ids=[1], model=str(tmp_path / "nothing"))


def test_importing_the_call_loads_no_framework():
    import subprocess
    import sys

    code = "import sys, cleanse; cleanse.replay; print([m for m in ('torch', 'mindspore') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
