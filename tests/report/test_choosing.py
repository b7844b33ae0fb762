"""What a page of bounded size shows: the worst, and a sample that does not know where a record stands."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from cleanse import findings
from cleanse.records import Finding
from cleanse.report import choosing
from cleanse.report.choosing import choose
from cleanse.report.rows import Key


def write(path: Path, order: np.ndarray) -> Path:
    """3,000 findings of one rule and one of another, in some order; row i of content ``i``."""
    made = [Finding("s", int(i), "a.many", "reject", "t", 0, 1, 10.0 + i % 7, 10.0, "m", f"excerpt {i}") for i in order]
    made.append(Finding("s", 5000, "b.few", "note", "", None, None, None, None, "m", ""))
    made.append(Finding("s", -1, "c.file", "note", "", None, None, None, None, "m", ""))
    pq.write_table(findings.table(made), path)
    return path


NOBODY = SimpleNamespace(is_held=lambda _, rows: np.zeros(len(rows), np.bool_))


def test_rules_take_turns_and_a_rare_one_is_shown(tmp_path: Path) -> None:
    chosen = choose(write(tmp_path / "f", np.arange(3000)), NOBODY)
    assert Key("s", 5000) in chosen[:2]
    assert len(chosen) == choosing.WORST + choosing.SAMPLED + 1
    assert all(key.row >= 0 for key in chosen)
    assert all(key.row % 7 == 6 for key in chosen if key.row != 5000 and chosen.index(key) <= choosing.WORST)


@pytest.mark.parametrize("batch", [97, 1 << 16])
def test_the_choice_does_not_depend_on_the_order_or_on_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(choosing, "_BATCH", batch)
    forward = choose(write(tmp_path / "f", np.arange(3000)), NOBODY)
    shuffled = choose(write(tmp_path / "g", np.random.default_rng(1).permutation(3000)), NOBODY)
    assert set(forward) == set(shuffled)


def test_the_sample_is_spread_over_the_corpus(tmp_path: Path) -> None:
    chosen = choose(write(tmp_path / "f", np.arange(3000)), NOBODY)
    sampled = [key.row for key in chosen if key.row % 7 != 6 and key.row != 5000]
    # A fair draw of 60 from six parts of 500: the chance that a part has none is 0.002 %.
    assert len({row // 500 for row in sampled}) == 6


def test_quarantined_records_come_first(tmp_path: Path) -> None:
    held = SimpleNamespace(is_held=lambda _, rows: rows % 100 == 1)
    chosen = choose(write(tmp_path / "f", np.arange(3000)), held)
    assert sum(key.row % 100 == 1 for key in chosen) == 30


def test_copies_of_one_content_do_not_fill_the_page(tmp_path: Path) -> None:
    made = [Finding("s", i, "a", "note", "", None, None, 9.0, 1.0, "m", "same") for i in range(500)]
    made += [Finding("s", 500 + i, "a", "note", "", None, None, 2.0, 1.0, "m", f"other {i}") for i in range(5)]
    pq.write_table(findings.table(made), tmp_path / "f")
    assert {key.row for key in choose(tmp_path / "f", NOBODY)} >= {500, 501, 502, 503, 504}
