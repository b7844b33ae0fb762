"""An iterable dataset for torch's DataLoader, without the records that a scan would quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from cleanse.plug.filter import Filter


class FilteredIterable(IterableDataset[Mapping[str, Any]]):
    """Records of any iterable, some hundred judged at a time, in order and unchanged.

    An ``IterableDataset`` of torch divides itself among a DataLoader's workers; of any other iterable, worker k of n
    takes every n-th record from the k-th on.

    Args:
        records: a dataset, a list, or any iterable of mappings that can be iterated anew.
        filter: what to leave out; ``cleanse.Filter()`` by default.
        batch_size: records judged together.
    """

    def __init__(
        self,
        records: Iterable[Mapping[str, Any]],
        filter: Filter | None = None,  # noqa: A002 - what it is
        *,
        batch_size: int = 500,
    ) -> None:
        self._records = records
        self._filter = filter or Filter()
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        records = iter(self._mine())
        while batch := list(islice(records, self._batch_size)):
            for record, stays in zip(batch, self._filter(batch), strict=True):
                if stays:
                    yield record

    def _mine(self) -> Iterable[Mapping[str, Any]]:
        worker = get_worker_info()
        if worker is None or isinstance(self._records, IterableDataset):
            return self._records
        return islice(self._records, worker.id, None, worker.num_workers)
