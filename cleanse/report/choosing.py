"""Which records a page of bounded size shows: per rule the worst and a sample, the same for the same content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
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
    """The best candidates of one rule so far: smallest scores win."""

    def __init__(self) -> None:
        self._found: list[tuple[tuple[int, float, int], Key]] = []

    def add(
        self, scores: NDArray[np.float64], tie: NDArray[np.uint64], held: NDArray[np.bool_], keys: list[Key]
    ) -> None:
        rank = np.lexsort((tie, scores, ~held))[:_KEEP]
        self._found += [((int(not held[i]), float(scores[i]), int(tie[i])), keys[i]) for i in rank.tolist()]
        self._found.sort(key=lambda item: (item[0], item[1]))
        del self._found[_KEEP:]

    def first(self, n: int) -> list[Key]:
        """The best records, those that repeat another's content last."""
        seen: dict[int, Key] = {}
        for score, key in self._found:
            seen.setdefault(score[2], key)
        return list(dict.fromkeys([*seen.values(), *(key for _, key in self._found)]))[:n]


def choose(findings: Path, rows: Rows) -> list[Key]:
    """The records to show: the first of every rule, then the second of every rule, and so on.

    Quarantined records come before others of the same rule. Reads the findings once, a batch at a time.
    """
    worst: dict[str, _Candidates] = {}
    sampled: dict[str, _Candidates] = {}
    for rule, source, table in _by_rule_and_source(findings):
        numbers = table.column("row").to_numpy()
        about_records = np.flatnonzero(numbers >= 0)
        if not len(about_records):
            continue
        held = rows.is_held(source, numbers)
        drawn = _content_hash(table)
        beyond = _beyond(table)
        # Only what can win is made into Python objects.
        for found, by in ((worst, -beyond), (sampled, drawn.astype(np.float64))):
            score = np.where(numbers >= 0, by, np.inf)
            best = np.lexsort((drawn, score, ~held))[:_KEEP]
            best = best[numbers[best] >= 0]
            keys = [Key(source, int(row)) for row in numbers[best]]
            found.setdefault(rule, _Candidates()).add(score[best], drawn[best], held[best], keys)
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
