"""The way out: a list of rows to skip that keeps the dataset's length, and a collator that skips them.

Deleting rows before resuming changes the permutation: of 64 rows with one deleted, 1 of 63 kept its place. So a skip
list names rows, and they are masked or exchanged where the batch is put together.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cleanse.replaying.steps import RowId

IGNORED = -100  # the label that torch's cross entropy, and every trainer on it, leaves out
ROW_ID = "row_id"
_MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class SkipList:
    """Rows to skip, in a dataset that stays as long as it is."""

    rows: frozenset[RowId]
    dataset_length: int | None = None  # rows of the dataset the list was made for; checked where both are known
    reason: str = ""

    def __post_init__(self) -> None:
        if self.dataset_length is None:
            return
        outside = sorted(r for r in self.rows if isinstance(r, int) and not 0 <= r < self.dataset_length)
        if outside:
            raise ValueError(f"rows {outside[:3]} lie outside a dataset of {self.dataset_length} rows")

    def write(self, path: str | Path) -> None:
        """Write ``skip.json``; a reader never sees half of it."""
        rows = sorted(self.rows, key=lambda r: (isinstance(r, str), r))
        content = {"skip": rows, "dataset_length": self.dataset_length, "reason": self.reason, "format": 1}
        write_atomically(Path(path), json.dumps(content, indent=1, ensure_ascii=True) + "\n")

    @staticmethod
    def read(path: str | Path) -> SkipList:
        """Read ``skip.json``.

        Raises:
            ValueError: not a skip list.
        """
        path = Path(path)
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"{path} has more than {_MAX_BYTES >> 20} MiB: no skip list")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            rows, length = content["skip"], content["dataset_length"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f'{path} is no skip list ({{"skip": [rows], "dataset_length": n}}): {error}') from error
        if not isinstance(rows, list) or any(not isinstance(r, int | str) or isinstance(r, bool) for r in rows):
            raise ValueError(f"{path}: skip must be a list of row numbers or ids")
        if length is not None and not isinstance(length, int):
            raise ValueError(f"{path}: dataset_length must be a number or null, not {length!r}")
        return SkipList(frozenset(rows), length, str(content.get("reason", "")))


def write_atomically(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    part.replace(path)


class MapDataset(Protocol):
    """What both torch and datasets call a map-style dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class WithRowIds:
    """A dataset whose examples carry their row: ``{**example, "row_id": i}``. The order of a run does not change.

    Turn a trainer's column pruning off with it (``remove_unused_columns=False``): pruning drops the id.
    """

    def __init__(self, dataset: MapDataset, key: str = ROW_ID) -> None:
        self.dataset = dataset
        self._key = key

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The example, a mapping, with its row added (an id it already has is kept)."""
        return {self._key: int(index), **self.dataset[index]}


Features = list[dict[str, Any]]


class SkipCollator:
    """Wraps any collator, of any framework: rows on the skip list teach nothing, all others keep their places.

    ``mask`` sets the row's labels to -100; if that leaves a micro-batch without a supervised token, a trainer that
    averages per micro-batch would divide 0 by 0, so with ``dataset`` given such a batch is filled as by ``substitute``.
    ``substitute`` exchanges the row for the next one in ``dataset`` that is not on the list.

    Args:
        collate: the collator to wrap: a list of examples -> a batch.
        skip: a ``SkipList``, the path of a ``skip.json``, or the rows.
        mode: ``mask`` or ``substitute``.
        dataset: where substitutes come from; required for ``substitute``.
        key: which field of an example names its row (see ``WithRowIds``).
        keep_ids: leave the field in for the wrapped collator; by default it is taken out, as collators stack numbers.

    Raises:
        ValueError: on construction, for a mode that does not exist, a missing dataset, or one of another length than
            the skip list was made for; in a call, for an example without a row id or labels that cannot be found.
        TypeError: in a call, for an example that is a pack of rows.
    """

    def __init__(
        self,
        collate: Callable[[Features], Any],
        skip: SkipList | str | Path | Iterable[RowId],
        *,
        mode: str = "mask",
        dataset: MapDataset | None = None,
        key: str = ROW_ID,
        keep_ids: bool = False,
    ) -> None:
        if isinstance(skip, str | Path):
            skip = SkipList.read(skip)
        self.skip = skip if isinstance(skip, SkipList) else SkipList(frozenset(skip))
        if mode not in {"mask", "substitute"}:
            raise ValueError(f"mode is mask or substitute, not {mode!r}")
        if mode == "substitute" and dataset is None:
            raise ValueError("to substitute rows the collator needs the dataset they come from")
        if dataset is not None and self.skip.dataset_length not in {None, len(dataset)}:
            raise ValueError(
                f"the skip list was made for {self.skip.dataset_length} rows, the dataset has {len(dataset)}: "
                "a dataset of another length is fed in another order"
            )
        self._collate = collate
        self._mode = mode
        self._dataset = dataset
        self._key = key
        self._keep_ids = keep_ids

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> Any:
        """Collate, skipping. ``features`` and their examples are not changed."""
        rows = [self._row(f) for f in features]
        skipped = [i for i, row in enumerate(rows) if row in self.skip.rows]
        examples = [dict(f) for f in features]
        substitute = self._mode == "substitute" or (len(skipped) == len(rows) and self._dataset is not None)
        if skipped and substitute:
            for i in skipped:
                examples[i] = self._substitute(rows[i])
            skipped = []
        if not self._keep_ids:
            for example in examples:
                example.pop(self._key, None)
        late = [i for i in skipped if not _mask_example(examples[i])]
        batch = self._collate(examples)
        if late:
            _mask_batch(batch, late, len(examples))
        return batch

    def _row(self, feature: Mapping[str, Any]) -> RowId:
        row = feature.get(self._key)
        if row is None:
            raise ValueError(
                f"an example without {self._key!r}: wrap the dataset in cleanse.WithRowIds and keep the trainer "
                "from pruning columns (remove_unused_columns=False)"
            )
        if isinstance(row, list | tuple):
            raise TypeError(
                f"an example holds several rows ({row[:3]}...): a pack cannot be masked row by row. "
                "Skip the rows before packing, or train unpacked"
            )
        return row if isinstance(row, str) else int(row)

    def _substitute(self, row: RowId) -> dict[str, Any]:
        assert self._dataset is not None
        n = len(self._dataset)
        start = row if isinstance(row, int) else zlib.crc32(row.encode()) % n
        for offset in range(1, n + 1):
            example = dict(self._dataset[(start + offset) % n])
            if example.get(self._key, (start + offset) % n) not in self.skip.rows:
                example[self._key] = row  # it stands in for this row
                return example
        raise ValueError("every row of the dataset is on the skip list")


def _mask_example(example: dict[str, Any]) -> bool:
    """Mask the labels an example brings along. False where it brings none: then the collator makes them."""
    labels = example.get("labels")
    if labels is not None:
        example["labels"] = _filled(labels, IGNORED)
    masks = [name for name in ("completion_mask", "assistant_masks") if example.get(name) is not None]
    for name in masks:
        example[name] = _filled(example[name], 0)
    return labels is not None or bool(masks)


def _filled(values: Any, with_: int) -> Any:
    """Something of the same kind and shape, holding one value."""
    if isinstance(values, list | tuple):
        return type(values)([with_] * len(values))
    if isinstance(values, int):
        return with_
    blank = values.copy() if hasattr(values, "copy") else values.clone()
    blank[...] = with_
    return blank


def _mask_batch(batch: Any, rows: Sequence[int], count: int) -> None:
    """Mask labels that the collator made, in place."""
    labels = batch.get("labels") if hasattr(batch, "get") else None
    if labels is None:
        raise ValueError("neither the examples nor the batch hold labels: nothing to mask; use mode='substitute'")
    if len(labels) != count:
        raise ValueError(
            f"the collator joined {count} examples into {len(labels)} rows, so a row's labels cannot be told: "
            "put labels into the examples, or use mode='substitute'"
        )
    for i in rows:
        labels[i] = _filled(labels[i], IGNORED)
