"""Which records a page of bounded size shows: per rule the worst and a sample, the same for the same content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from cleanse.report.rows import Key, Rows

WORST = 60
"""Records shown per rule for how far they are beyond its limit."""

SAMPLED = 60
"""Records shown per rule by a hash of what was found: every one has the same chance, whatever its place."""

_KEEP = 200  # candidates held per rule while reading: some are several findings of one record
_BATCH = 1 << 16


class _Candidates:
    """The best findings of one rule so far: quarantined before others, first of their content before its copies."""

    def __init__(self) -> None:
        self._found: list[tuple[tuple[bool, int, float, int], Key]] = []

    def add(
        self,
        scores: NDArray[np.float64],
        content: NDArray[np.uint64],
        held: NDArray[np.bool_],
        key: Callable[[int], Key],
    ) -> None:
        """Takes the best of some findings in; smallest scores win. ``key`` gives the record of one of them."""
        copy = _copies(content, scores)
        known: dict[int, int] = {}
        for (_, _, _, same), _ in self._found:
            known[same] = known.get(same, 0) + 1
        for i in np.lexsort((content, scores, copy, ~held))[:_KEEP].tolist():
            same = int(content[i])
            self._found.append(((not held[i], int(copy[i]) + known.get(same, 0), float(scores[i]), same), key(i)))
        self._found.sort()
        del self._found[_KEEP:]

    def first(self, n: int) -> list[Key]:
        """The best records."""
        return list(dict.fromkeys(key for _, key in self._found))[:n]


def _copies(content: NDArray[np.uint64], scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each finding how many of the same content come before it."""
    order = np.lexsort((scores, content))
    same = content[order]
    first = np.concatenate([[True], same[1:] != same[:-1]])
    start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    copies = np.empty(len(order), np.int64)
    copies[order] = np.arange(len(order)) - start
    return copies


def choose(findings: Path, rows: Rows) -> list[Key]:
    """The records to show: the first of every rule, then the second of every rule, and so on.

    Quarantined records come before others of the same rule. Reads the findings once, a batch at a time.
    """
    worst: dict[str, _Candidates] = {}
    sampled: dict[str, _Candidates] = {}
    for rule, source, table in _by_rule_and_source(findings):
        table = table.filter(pc.greater_equal(table.column("row"), 0))  # noqa: PLW2901 - files have no records to show
        if not table.num_rows:
            continue
        numbers = table.column("row").to_numpy()
        held = rows.is_held(source, numbers)
        content = _content_hash(table)
        key = partial(_key, source, numbers)
        worst.setdefault(rule, _Candidates()).add(-_beyond(table), content, held, key)
        sampled.setdefault(rule, _Candidates()).add(content.astype(np.float64), content, held, key)
    per_rule = []
    for rule in sorted(worst):
        first = worst[rule].first(WORST)
        per_rule.append([*first, *(key for key in sampled[rule].first(WORST + SAMPLED) if key not in first)])
    chosen: dict[Key, None] = {}
    for place in range(WORST + SAMPLED):
        for keys in per_rule:
            if place < len(keys):
                chosen.setdefault(keys[place])
    return list(chosen)


def _key(source: str, numbers: NDArray[np.int64], i: int) -> Key:
    return Key(source, int(numbers[i]))


def _by_rule_and_source(findings: Path) -> Iterator[tuple[str, str, pa.Table]]:
    columns = ["source", "row", "rule", "value", "limit", "excerpt"]
    with pq.ParquetFile(findings) as file:
        for batch in file.iter_batches(_BATCH, columns=columns):
            table = pa.Table.from_batches([batch])
            rules = batch.column("rule").dictionary_encode()
            sources = batch.column("source").dictionary_encode()
            code = rules.indices.to_numpy().astype(np.int64) * len(sources.dictionary) + sources.indices.to_numpy()
            for pair in np.unique(code).tolist():
                rule, source = divmod(pair, len(sources.dictionary))
                yield (
                    rules.dictionary[rule].as_py(),
                    sources.dictionary[source].as_py(),
                    table.filter(pa.array(code == pair)),
                )


def _content_hash(table: pa.Table) -> NDArray[np.uint64]:
    """A number per finding that follows from what was found, not from where."""
    excerpts = table.column("excerpt").to_pylist()
    return np.fromiter((xxhash.xxh3_64_intdigest(text.encode()) for text in excerpts), np.uint64, len(excerpts))


def _beyond(table: pa.Table) -> NDArray[np.float64]:
    """How far beyond the limit, in multiples of it."""
    value = table.column("value").to_numpy().astype(np.float64)
    limit = table.column("limit").to_numpy().astype(np.float64)
    with np.errstate(invalid="ignore"):
        far = np.abs(value - limit) / np.maximum(np.abs(limit), 1.0)
    return np.where(np.isnan(far), 0.0, np.minimum(far, 1e300))
