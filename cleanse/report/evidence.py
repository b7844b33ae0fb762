"""What the scan wrote about some records: their findings and what the probe measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cleanse.report.rows import Key

_BATCH = 1 << 16


def findings_of(path: Path, keys: Collection[Key]) -> dict[Key, list[dict[str, Any]]]:
    """The findings of these records, in the file's order, which is that of strength within a record."""
    found: dict[Key, list[dict[str, Any]]] = {key: [] for key in keys}
    if keys:
        for item in _rows_of(path, keys):
            found[Key(item["source"], item["row"])].append(item)
    return found


def findings_of_files(path: Path, most: int) -> list[dict[str, Any]]:
    """What was found about whole files (row -1), up to a number."""
    return _first(path, "row", lambda rows: pc.less(rows, 0), most)


def findings_by_rule(path: Path, rule: str, most: int) -> list[dict[str, Any]]:
    """The first findings of one rule."""
    return _first(path, "rule", lambda rules: pc.equal(rules, rule), most)


def _first(path: Path, column: str, wanted: Callable[[Any], Any], most: int) -> list[dict[str, Any]]:
    """The first findings for which a column is as wanted. Holds one row group, and reads it only where one is."""
    found: list[dict[str, Any]] = []
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            mask = wanted(file.read_row_group(group, [column]).column(0))
            if pc.any(mask).as_py():
                found += file.read_row_group(group).filter(mask).slice(0, most - len(found)).to_pylist()
            if len(found) == most:
                break
    return found


def probe_of(path: Path, keys: Collection[Key]) -> dict[Key, dict[str, Any]]:
    """What the probe measured for these records; those it did not see are missing."""
    if not keys or not path.exists():
        return {}
    return {Key(item["source"], item["row"]): item for item in _rows_of(path, keys)}


def _rows_of(path: Path, keys: Collection[Key]) -> Iterator[dict[str, Any]]:
    wanted: dict[str, list[int]] = {}
    for key in keys:
        wanted.setdefault(key.source, []).append(key.row)
    rows = {source: np.unique(np.array(numbers, np.int64)) for source, numbers in wanted.items()}
    lowest, highest = min(r[0] for r in rows.values()), max(r[-1] for r in rows.values())
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH):
            numbers = batch.column("row").to_numpy()
            near = np.flatnonzero((numbers >= lowest) & (numbers <= highest))
            if not len(near):
                continue
            sources = batch.column("source").dictionary_encode()
            codes = sources.indices.to_numpy()
            mine = np.zeros(len(numbers), np.bool_)
            for code, source in enumerate(sources.dictionary.to_pylist()):
                if source in rows:
                    mine |= (codes == code) & np.isin(numbers, rows[source])
            if mine.any():
                yield from batch.filter(pa.array(mine)).to_pylist()


def source_codes(column: pa.ChunkedArray) -> tuple[np.ndarray[Any, Any], list[str]]:
    """A column of names as numbers, and the names."""
    encoded = pc.dictionary_encode(column.combine_chunks())
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
