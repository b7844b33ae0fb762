"""The records that lie in an output directory, fetched one by one: quarantine/ by name, clean/ by counting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cleanse.atomic import read_json
from cleanse.records import QUARANTINE_FIELDS

Record = dict[str, Any]
_MOST_SHIFTS = 64  # blank lines that are tried where the file has some: further ones leave a record without its text


class Key(NamedTuple):
    """A record by source and number."""

    source: str
    row: int

    @property
    def id(self) -> str:
        """As ``cleanse_id`` has it."""
        return f"{self.source}:{self.row}"


class ArrowRows:
    """A dataset folder's rows by position. One file is mapped at a time, and nothing in it read before it is asked for.

    Pages of a mapped file count as this process's memory once they were looked at: with all files mapped, a corpus
    would.
    """

    def __init__(self, folder: Path) -> None:
        names = [file["filename"] for file in read_json(folder / "state.json")["_data_files"]]
        self._files = [folder / name for name in names]
        lengths = [[batch.num_rows for batch in _mapped(path)] for path in self._files]
        self._first = np.concatenate([[0], np.cumsum([len(rows) for rows in lengths])]).astype(np.int64)
        self._starts = np.concatenate([[0], np.cumsum([n for rows in lengths for n in rows])]).astype(np.int64)
        self._open: tuple[int, list[pa.RecordBatch]] = (-1, [])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order."""
        for path in self._files:
            yield from _mapped(path)

    def taken(self, positions: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        """Some rows, ascending by position: for each batch the indices into ``positions``, and the rows."""
        batch_of = np.searchsorted(self._starts, positions, side="right") - 1
        for batch in np.unique(batch_of).tolist():
            mine = np.flatnonzero(batch_of == batch)
            yield mine, self._batch(batch).take(pa.array(positions[mine] - self._starts[batch]))

    def row(self, position: int) -> Record:
        """One record as Python values."""
        batch = int(np.searchsorted(self._starts, position, side="right")) - 1
        found: Record = self._batch(batch).slice(position - int(self._starts[batch]), 1).to_pylist()[0]
        return found

    def _batch(self, number: int) -> pa.RecordBatch:
        file = int(np.searchsorted(self._first, number, side="right")) - 1
        if self._open[0] != file:
            self._open = file, list(_mapped(self._files[file]))
        return self._open[1][number - int(self._first[file])]


def _mapped(path: Path) -> Iterator[pa.RecordBatch]:
    return iter(pa.ipc.open_stream(pa.memory_map(str(path))))


@dataclass(frozen=True)
class Held:
    """The quarantined records of one source."""

    rows: NDArray[np.int64]  # ascending
    position: NDArray[np.int64]  # (rows,) in quarantine/


class Rows:
    """All records of an output directory."""

    def __init__(self, out: Path, summary: dict[str, Any]) -> None:
        self._quarantine = ArrowRows(out / "quarantine")
        # Of an output in another place, a large clean/ is not copied: its records are then not shown.
        self._clean = ArrowRows(out / "clean") if (out / "clean").exists() else None
        self._n_blank = int(summary["counts"]["blank_lines"])
        self._n_read = {source["name"]: int(source["read"]) for source in summary["sources"]}

    def quarantine_batches(self) -> Iterator[pa.RecordBatch]:
        """All of quarantine/, memory-mapped."""
        return self._quarantine.batches()

    @cached_property
    def held(self) -> dict[str, Held]:
        """What is quarantined, by source; sources without any are missing."""
        parts: dict[str, list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = {}
        at = 0
        for batch in self._quarantine.batches():
            sources = batch.column("cleanse_source").dictionary_encode()
            codes = sources.indices.to_numpy(zero_copy_only=False)
            rows = batch.column("cleanse_row").to_numpy(zero_copy_only=False)
            for code, source in enumerate(sources.dictionary.to_pylist()):
                mine = np.flatnonzero(codes == code)
                parts.setdefault(source, []).append((rows[mine], mine + at))
            at += batch.num_rows
        return {
            source: Held(np.concatenate([r for r, _ in found]), np.concatenate([p for _, p in found]))
            for source, found in parts.items()
        }

    def strongest_reasons(self) -> dict[str, int]:
        """How many records are quarantined first of all for each rule, most frequent first."""
        counts: dict[str, int] = {}
        for batch in self._quarantine.batches():
            first = pc.list_flatten(pc.list_slice(batch.column("cleanse_reasons"), 0, 1))
            for item in pc.value_counts(first).to_pylist():
                counts[item["values"]] = counts.get(item["values"], 0) + item["counts"]
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def quarantined_keys(self) -> Iterable[Key]:
        """Every quarantined record, in the input's order."""
        for batch in self._quarantine.batches():
            sources, rows = batch.column("cleanse_source").to_pylist(), batch.column("cleanse_row").to_pylist()
            yield from map(Key, sources, rows)

    def is_held(self, source: str, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of a source's rows are quarantined."""
        held = self.held.get(source)
        return np.zeros(len(rows), np.bool_) if held is None else np.isin(rows, held.rows)

    def batches_of(
        self, source: str, rows: NDArray[np.int64], *, held: bool
    ) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        """The records of a source with these numbers, all quarantined or none: indices into ``rows``, and records.

        Nothing for clean records whose position blank lines hide.
        """
        if held:
            found = self.held[source]
            yield from self._quarantine.taken(found.position[np.searchsorted(found.rows, rows)])
        elif self._n_blank == 0 and self._clean is not None:
            yield from self._clean.taken(self._position(source, rows))

    def _position(self, source: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where clean records of a source stand in clean/, if no blank line is before them."""
        before = 0
        for name, n_read in self._n_read.items():
            if name == source:
                break
            held = self.held.get(name)
            before += n_read - (len(held.rows) if held is not None else 0)
        mine = self.held.get(source)
        return before + rows - (np.searchsorted(mine.rows, rows) if mine is not None else 0)

    def quarantined(self, key: Key) -> Record | None:
        """The quarantined record with its ``cleanse_*`` columns; None where it is not quarantined."""
        held = self.held.get(key.source)
        place = int(np.searchsorted(held.rows, key.row)) if held is not None else 0
        if held is None or place == len(held.rows) or held.rows[place] != key.row:
            return None
        return self._quarantine.row(int(held.position[place]))

    def clean(self, key: Key, fits: Callable[[Record], bool]) -> Record | None:
        """The record in clean/, where its position can be told.

        Blank lines are counted in row numbers and are no records: where the input has some, the position is tried
        against ``fits``, which says whether a record has what was found in it.
        """
        if key.source not in self._n_read or self._clean is None:
            return None
        position = int(self._position(key.source, np.array([key.row], np.int64))[0])
        for shift in range(min(self._n_blank, _MOST_SHIFTS) + 1):
            if not 0 <= position - shift < len(self._clean):
                continue
            record = self._clean.row(position - shift)
            if self._n_blank == 0 or fits(record):
                return record
        return None


ADDED = frozenset(field.name for field in QUARANTINE_FIELDS)
"""Columns of quarantine/ that the input did not have."""
