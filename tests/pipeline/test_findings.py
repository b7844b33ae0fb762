from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanse import findings
from cleanse.records import FINDINGS_SCHEMA, Finding


def finding(row: int, rule: str = "r") -> Finding:
    return Finding("a.jsonl", row, rule, "note", "text", 1, 2, 0.5, None, "said", "seen")


def test_table_has_the_schema_and_keeps_every_field() -> None:
    made = findings.table([finding(3)])
    assert made.schema == FINDINGS_SCHEMA
    assert made.to_pylist() == [finding(3)._asdict()]
    assert findings.table([]).schema == FINDINGS_SCHEMA


def test_merged_sorts_by_row_and_keeps_the_order_within_a_row() -> None:
    first = findings.table([finding(1, "a"), finding(5, "b")])
    second = findings.table([finding(1, "c"), finding(0, "d")])
    joined = findings.merged([first, second]).select(["row", "rule"]).to_pylist()
    assert [(f["row"], f["rule"]) for f in joined] == [(0, "d"), (1, "a"), (1, "c"), (5, "b")]


def write(path: Path, rows_of_shard: dict[int, list[int]], per_group: int) -> None:
    with pq.ParquetWriter(path, findings.COMMITTED_SCHEMA) as writer:
        for shard, rows in rows_of_shard.items():
            for start in range(0, len(rows), per_group):
                part = findings.table([finding(row) for row in rows[start : start + per_group]])
                writer.write_table(findings.numbered(part, shard))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 60), max_size=30).map(sorted), min_size=1, max_size=4),
    st.integers(1, 9),
    st.lists(st.integers(0, 70), max_size=8).map(sorted),
)
def test_a_cursor_gives_each_finding_once_at_its_block(tmp_path_factory, shards, per_group, cuts) -> None:
    path = tmp_path_factory.mktemp("cursor") / "f.parquet"
    write(path, dict(enumerate(shards)), per_group)
    cursor = findings.Cursor(path)
    for shard, rows in enumerate(shards):
        got = []
        for low, cut in zip([-1, *cuts], cuts, strict=False):
            taken = cursor.take(shard, cut).column("row").to_pylist()
            assert taken == [row for row in rows if low < row <= cut]
            got += taken
        got += cursor.take(shard).column("row").to_pylist()
        assert got == rows
    assert cursor.take(len(shards)).num_rows == 0
    cursor.close()


def test_moved_adds_to_rows_only() -> None:
    made = findings.moved(findings.table([finding(3)]), 1 << 40)
    assert made.schema == FINDINGS_SCHEMA
    assert made.to_pylist() == [finding(3 + (1 << 40))._asdict()]
    assert findings.moved(pa.table(made), -(1 << 40)).to_pylist() == [finding(3)._asdict()]
