from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import cleanse
from cleanse.errors import CleanseError, UsageError

data = pytest.importorskip("torch.utils.data")

GOOD = [{"text": f"All is well with line {i} of the text."} for i in range(40)]
BAD = {"text": "Left\u202eright and so on."}


def records() -> list[dict[str, str]]:
    mixed = list(GOOD)
    for at in (0, 7, 8, 39, 43):
        mixed.insert(at, BAD)
    return mixed


def test_an_iterable_without_the_bad_ones() -> None:
    kept = cleanse.FilteredIterable(records(), batch_size=7)
    assert isinstance(kept, data.IterableDataset)
    assert list(kept) == list(kept) == GOOD


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_divide_the_records(workers: int) -> None:
    loader = data.DataLoader(cleanse.FilteredIterable(records()), batch_size=4, num_workers=workers)
    texts = [text for batch in loader for text in batch["text"]]
    assert sorted(texts) == sorted(r["text"] for r in GOOD)


class Sharded(data.IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        worker = data.get_worker_info()
        yield from records()[worker.id :: worker.num_workers]


def test_a_dataset_that_divides_itself_is_not_divided_again() -> None:
    loader = data.DataLoader(cleanse.FilteredIterable(Sharded()), batch_size=4, num_workers=2)
    assert sorted(text for batch in loader for text in batch["text"]) == sorted(r["text"] for r in GOOD)


def test_a_collator_drops_what_is_held() -> None:
    collate = cleanse.FilterCollator(list)
    assert collate(records()[:10]) == GOOD[:7]
    assert pickle.loads(pickle.dumps(collate))(records()[:10]) == GOOD[:7]


def test_a_batch_keeps_its_size_where_asked() -> None:
    collate = cleanse.FilterCollator(list, held="substitute")
    assert collate([BAD, GOOD[0], BAD, GOOD[1], BAD]) == [GOOD[0], GOOD[0], GOOD[1], GOOD[1], GOOD[0]]
    assert collate([BAD, BAD]) == [GOOD[1], GOOD[1]]


def test_no_step_is_without_a_batch() -> None:
    collate = cleanse.FilterCollator(list)
    with pytest.raises(CleanseError, match="all 2 examples of the first batch"):
        collate([BAD, BAD])
    collate(GOOD[:3])
    assert collate([BAD, BAD]) == [GOOD[2]]
    with pytest.raises(UsageError, match="held is 'keep'"):
        cleanse.FilterCollator(list, held="keep")


def test_in_a_loader() -> None:
    loader = data.DataLoader(records(), batch_size=9, collate_fn=cleanse.FilterCollator(list), num_workers=2)
    assert [record for batch in loader for record in batch] == GOOD
