"""The filter inside MindSpore's own datasets."""

from __future__ import annotations

import json

import numpy as np
import pytest

import cleanse
from cleanse.plug.mindspore import RowPredicate, RowRepair, RowVerdict

ms = pytest.importorskip("mindspore.dataset", reason="these tests run MindSpore's datasets: pip install mindspore")

GOOD = [(f"Where is house {i}?", f"It is the one beside the mill at the river, number {i}.") for i in range(30)]
BAD = ("Where is it?", "Left\u202eright and so on.")
MENDABLE = ("Where is the mill?", "Beside\u200b the ri\u200bver.")
COLUMNS = ["prompt", "completion"]


def rows() -> list[tuple[str, str]]:
    mixed = list(GOOD)
    for at in (0, 11, 12, 32):
        mixed.insert(at, BAD)
    return [*mixed, MENDABLE]


def dataset(given=None):
    source = [tuple(map(np.array, row)) for row in (given or rows())]
    return ms.GeneratorDataset(source, COLUMNS, shuffle=False, num_parallel_workers=1)


def texts(data) -> list[tuple[str, ...]]:
    return [tuple(map(str, row)) for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]


def test_a_dataset_without_the_bad_rows() -> None:
    kept = cleanse.mindspore_filter(dataset(), batch_size=7)
    assert texts(kept) == texts(kept) == [*GOOD, MENDABLE]
    assert kept.get_col_names() == COLUMNS
    batches = list(cleanse.mindspore_filter(dataset()).batch(8).create_dict_iterator(num_epochs=1, output_numpy=True))
    assert [len(batch["prompt"]) for batch in batches] == [8, 8, 8, 7]


def test_the_filter_operation() -> None:
    kept = dataset().filter(RowPredicate(COLUMNS), input_columns=COLUMNS, num_parallel_workers=1)
    assert texts(kept) == [*GOOD, MENDABLE]


def test_the_map_operations() -> None:
    mended = dataset([BAD, MENDABLE, GOOD[0]]).map(RowRepair(COLUMNS), input_columns=COLUMNS, num_parallel_workers=1)
    assert texts(mended) == [BAD, (MENDABLE[0], "Beside the river."), GOOD[0]]
    told = dataset([BAD, MENDABLE, GOOD[0]]).map(
        RowVerdict(COLUMNS),
        input_columns=COLUMNS,
        output_columns=[*COLUMNS, "cleanse_verdict", "cleanse_reasons"],
        num_parallel_workers=1,
    )
    wanted = [("quarantine", "encoding.bidi-override"), ("repair", ""), ("keep", "")]
    assert [row[2:] for row in texts(told)] == wanted


def test_chats_as_dicts_and_as_json() -> None:
    def talk(answer: str) -> dict:
        return {"messages": [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": answer}]}

    talks = [talk(GOOD[0][1]), talk(BAD[1]), talk(GOOD[1][1])]
    as_json = [(np.array(json.dumps(t["messages"])),) for t in talks]
    data = ms.GeneratorDataset(as_json, ["messages"], shuffle=False, num_parallel_workers=1)
    assert [json.loads(row[0]) for row in texts(cleanse.mindspore_filter(data))] == [
        talks[0]["messages"],
        talks[2]["messages"],
    ]
    as_dict = [(t,) for t in talks]
    data = ms.GeneratorDataset(as_dict, ["talk"], shuffle=False, num_parallel_workers=1)
    kept = cleanse.mindspore_filter(data)
    assert [row[0] for row in kept.create_tuple_iterator(num_epochs=1, output_numpy=True)] == [talks[0], talks[2]]
