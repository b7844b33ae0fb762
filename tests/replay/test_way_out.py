"""Skip lists, the collator that obeys them, and capsules."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanse.replaying import SkipCollator, SkipList, WithRowIds, resume_recipe, write_capsule
from cleanse.replaying.capsule import json_safe


def plain(examples):
    return {k: np.array([e[k] for e in examples]) for k in examples[0]}


def makes_labels(examples):
    batch = plain(examples)
    return {**batch, "labels": batch["input_ids"].copy()}


def data(n, *, labels=True):
    rows = [{"input_ids": [i, i + 1, i + 2], **({"labels": [-100, i + 1, i + 2]} if labels else {})} for i in range(n)]
    return WithRowIds(rows)


@given(rows=st.sets(st.integers(0, 9), max_size=9), batch=st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_masked_rows_teach_nothing_and_the_others_are_untouched(rows, batch):
    source = data(10)
    features = [source[i] for i in batch]
    kept = json.dumps(features)
    out = SkipCollator(plain, rows)(features)
    assert json.dumps(features) == kept
    assert "row_id" not in out
    assert out["input_ids"].tolist() == [[i, i + 1, i + 2] for i in batch]
    assert out["labels"].tolist() == [[-100] * 3 if i in rows else [-100, i + 1, i + 2] for i in batch]


@given(rows=st.sets(st.integers(0, 9), max_size=9), batch=st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_labels_that_the_collator_makes_are_masked_too(rows, batch):
    out = SkipCollator(makes_labels, rows)([data(10, labels=False)[i] for i in batch])
    assert out["labels"].tolist() == [[-100] * 3 if i in rows else [i, i + 1, i + 2] for i in batch]


@given(rows=st.sets(st.integers(0, 9), max_size=9), batch=st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_substitutes_come_from_the_dataset_and_are_never_skipped_rows(rows, batch):
    source = data(10)
    out = SkipCollator(plain, rows, mode="substitute", dataset=source)([source[i] for i in batch])
    for i, ids in zip(batch, out["input_ids"].tolist(), strict=True):
        assert ids[0] not in rows
        assert i in rows or ids[0] == i


def test_a_micro_batch_without_any_token_is_filled_where_the_dataset_is_at_hand():
    source = data(10)
    batch = [source[3], source[4]]
    alone = SkipCollator(plain, {3, 4})(batch)
    assert (alone["labels"] == -100).all()
    filled = SkipCollator(plain, {3, 4}, dataset=source)(batch)
    assert filled["input_ids"][:, 0].tolist() == [5, 5]


def test_torch_tensors():
    torch = pytest.importorskip("torch", reason="masks torch tensors")

    def collate(examples):
        return {"input_ids": torch.tensor([e["input_ids"] for e in examples]), **label(examples)}

    def label(examples):
        given_ = [e["labels"] for e in examples if "labels" in e]
        return {"labels": torch.stack(given_) if given_ else torch.tensor([e["input_ids"] for e in examples])}

    features = [{"row_id": i, "input_ids": [i, i], "labels": torch.tensor([i, i])} for i in range(3)]
    assert SkipCollator(collate, {1})(features)["labels"].tolist() == [[0, 0], [-100, -100], [2, 2]]
    assert features[1]["labels"].tolist() == [1, 1]
    bare = [{"row_id": i, "input_ids": [i, i]} for i in range(3)]
    assert SkipCollator(collate, {1})(bare)["labels"].tolist() == [[0, 0], [-100, -100], [2, 2]]


def test_what_cannot_be_done_is_said():
    features = [{"row_id": i, "input_ids": [i]} for i in range(4)]
    with pytest.raises(ValueError, match="WithRowIds"):
        SkipCollator(plain, {1})([{"input_ids": [1]}])
    with pytest.raises(TypeError, match="several rows"):
        SkipCollator(plain, {1})([{"row_id": [1, 1, 2], "input_ids": [1, 1, 2]}])
    with pytest.raises(ValueError, match="nothing to mask"):
        SkipCollator(plain, {1})(features)
    with pytest.raises(ValueError, match="joined 4 examples into 1 rows"):
        SkipCollator(lambda x: {"labels": np.zeros((1, 4))}, {1})(features)
    with pytest.raises(ValueError, match="mask or substitute"):
        SkipCollator(plain, {1}, mode="drop")
    with pytest.raises(ValueError, match="needs the dataset"):
        SkipCollator(plain, {1}, mode="substitute")
    with pytest.raises(ValueError, match="every row"):
        SkipCollator(plain, range(3), mode="substitute", dataset=data(3))([data(3)[0]])


def test_a_skip_list_survives_the_file_and_guards_the_length(tmp_path):
    skip = SkipList(frozenset({3, 17}), 40, "rows of step 9")
    skip.write(tmp_path / "skip.json")
    assert SkipList.read(tmp_path / "skip.json") == skip
    SkipList(frozenset({"a", "b"})).write(tmp_path / "ids.json")
    assert SkipList.read(tmp_path / "ids.json").rows == {"a", "b"}
    assert SkipCollator(plain, tmp_path / "skip.json").skip == skip
    with pytest.raises(ValueError, match="another length"):
        SkipCollator(plain, skip, dataset=data(39))
    with pytest.raises(ValueError, match="outside"):
        SkipList(frozenset({40}), 40)
    for text in (
        "[]",
        "{}",
        '{"skip": [1.5], "dataset_length": 3}',
        '{"skip": [1], "dataset_length": "3"}',
        "nonsense",
    ):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ValueError, match="bad.json"):
            SkipList.read(tmp_path / "bad.json")


def test_a_capsule_holds_all_it_takes(tmp_path):
    records = {3: {"text": "caf\u00e9 \u202e"}, 17: {"text": "b"}}
    folder = write_capsule(
        tmp_path / "step-9",
        step=9,
        rows=[3, 17],
        records=records,
        settings={"seed": 42},
        figures={"loss": math.nan, "grad_norm": np.float32(2.5)},
        skip=SkipList(frozenset({3}), 40),
        recipe=resume_recipe(9, [3], checkpoint_step=5),
    )
    content = json.loads((folder / "capsule.json").read_text())
    assert content["rows"] == [3, 17]
    assert content["figures"] == {"loss": "nan", "grad_norm": 2.5}
    lines = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert {line["row"]: line["record"] for line in lines} == records
    assert "\u202e" not in (folder / "rows.jsonl").read_text()
    assert SkipList.read(folder / "skip.json").rows == {3}
    readme = (folder / "README.md").read_text()
    assert "checkpoint of step 5" in readme
    assert "steps 6 to 9" in readme
    assert not list(folder.glob(".*"))


def test_the_recipe_skips_nobody_where_nobody_is_at_fault():
    assert "none is at fault" in resume_recipe(9, [])
    assert "Do not delete" in resume_recipe(9, [1])
    assert json_safe({"a": (1, b"\xff", {2.0, math.inf})})["a"][1] == "ff"
