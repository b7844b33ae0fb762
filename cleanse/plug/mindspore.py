"""The filter for ``mindspore.dataset``: a whole dataset at batch speed, and operations for ``.filter`` and ``.map``.

MindSpore hands over one row at a time, as NumPy arrays (texts are arrays of no dimension) or dicts. Chats are a dict
column, or JSON text in a string column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cleanse.plug.filter import Filter


class RowPredicate:
    """``dataset.filter(RowPredicate(columns), input_columns=columns)``: whether a row stays.

    One row is judged at a time, which is slow: ``mindspore_filter`` judges hundreds together.
    """

    def __init__(self, columns: Sequence[str], filter: Filter | None = None) -> None:  # noqa: A002 - what it is
        """``columns`` are the input columns by their names, which tell the format; ``filter`` is ``Filter()``."""
        self._columns = tuple(columns)
        self._filter = filter or Filter()

    def __call__(self, *values: Any) -> bool:
        """The values of one row, in the order of the columns."""
        (keep,) = self._filter([_record(self._columns, values)])
        return keep


class RowRepair:
    """``dataset.map(RowRepair(columns), input_columns=columns)``: the row with its text mended."""

    def __init__(self, columns: Sequence[str], filter: Filter | None = None) -> None:  # noqa: A002 - what it is
        """As ``RowPredicate``."""
        self._columns = tuple(columns)
        self._filter = filter or Filter()

    def __call__(self, *values: Any) -> Any:
        """The values of one row, in the order of the columns, mended; strings that were not touched are the same."""
        mended = self._filter.repair([_record(self._columns, values)])
        made = tuple(
            np.array(mended[name][0]) if isinstance(mended[name][0], str) else value
            for name, value in zip(self._columns, values, strict=True)
        )
        return made if len(made) > 1 else made[0]


class RowVerdict:
    """Adds ``cleanse_verdict`` and ``cleanse_reasons`` (comma between rule ids) to a row.

    ``dataset.map(RowVerdict(columns), input_columns=columns,
    output_columns=[*columns, "cleanse_verdict", "cleanse_reasons"])``
    """

    def __init__(self, columns: Sequence[str], filter: Filter | None = None) -> None:  # noqa: A002 - what it is
        """As ``RowPredicate``."""
        self._columns = tuple(columns)
        self._filter = filter or Filter()

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """The values of one row, and what was found about it."""
        told = self._filter.annotate([_record(self._columns, values)])
        return (*values, np.array(told["cleanse_verdict"][0]), np.array(",".join(told["cleanse_reasons"][0])))


class _Source:
    """Rows of a dataset that stay, judged together and given one by one: what a GeneratorDataset reads."""

    def __init__(self, dataset: Any, columns: Sequence[str], keep: Filter, batch_size: int) -> None:
        self._dataset, self._columns, self._filter, self._batch_size = dataset, columns, keep, batch_size

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        batch: list[tuple[Any, ...]] = []
        # A for loop, because MindSpore's iterators fail when they are asked again after their end.
        for row in self._dataset.create_tuple_iterator(num_epochs=1, output_numpy=True):
            batch.append(tuple(row))
            if len(batch) == self._batch_size:
                yield from self._kept(batch)
                batch = []
        yield from self._kept(batch)

    def _kept(self, batch: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        records = [_record(self._columns, row) for row in batch]
        return (row for row, stays in zip(batch, self._filter(records), strict=True) if stays)


def mindspore_filter(
    dataset: Any,
    filter: Filter | None = None,  # noqa: A002 - what it is
    *,
    batch_size: int = 1000,
) -> Any:
    """A ``mindspore.dataset`` without the records that a scan would quarantine, in the same order.

    Args:
        dataset: a dataset of rows (filter before ``.batch``), whose column names tell the format.
        filter: what to leave out; ``cleanse.Filter()`` by default.
        batch_size: rows judged together.

    Returns:
        A ``GeneratorDataset`` of the same columns, to be batched, mapped and repeated like any other.
    """
    from mindspore.dataset import GeneratorDataset  # noqa: PLC0415 - the rest of this module needs no MindSpore

    columns = list(dataset.get_col_names())
    source = _Source(dataset, columns, filter or Filter(), batch_size)
    return GeneratorDataset(source, columns, shuffle=False, num_parallel_workers=1)


def _record(columns: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in zip(columns, values, strict=True)}


def _value(value: Any) -> Any:
    """A column's value as JSON knows it."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
