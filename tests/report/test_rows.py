"""Records are found where they went, compared with the input itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from report_scans import scanned

from cleanse.report.rows import Key
from cleanse.report.scan_facts import ScanFacts

BAD = {3, 4, 30, 59}


def lines(name: str, blank: set[int]) -> bytes:
    """60 records, one a line; some are empty outputs, which a rule holds back."""
    made = []
    for i in range(60):
        text = "" if i in BAD else f"{name} says {i}. The rest of it is ordinary."
        made.append(json.dumps({"instruction": f"{name} {i}", "input": "", "output": text}))
        if i in blank:
            made.append("")
    return "\n".join(made).encode() + b"\n"


@pytest.fixture(scope="module")
def two_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    for name in ("a", "b"):
        (folder / f"{name}.jsonl").write_bytes(lines(name, set()))
    return scanned(folder, folder.with_name("two-out"), corpus=False)


def test_every_record_of_every_source_is_found(two_sources: Path) -> None:
    facts = ScanFacts(two_sources)
    for source in facts.summary["sources"]:
        name = Path(source["name"]).stem
        for row in range(60):
            key = Key(source["name"], row)
            held = facts.rows.quarantined(key)
            assert (held is not None) == (row in BAD)
            if held is None:
                record = facts.rows.clean(key, lambda _: False)
                assert record is not None
                assert record["instruction"] == f"{name} {row}"
            else:
                assert held["cleanse_id"] == key.id


def test_many_at_once_are_those_one_by_one(two_sources: Path) -> None:
    facts = ScanFacts(two_sources)
    source = facts.summary["sources"][1]["name"]
    rows = np.array([row for row in range(60) if row not in BAD])
    found = {}
    for places, batch in facts.rows.batches_of(source, rows, held=False):
        found |= dict(zip(places.tolist(), batch.column("instruction").to_pylist(), strict=True))
    assert [found[i] for i in range(len(rows))] == [f"b {row}" for row in rows]


def test_blank_lines_do_not_lead_to_another_record(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_bytes(lines("d", {5, 6, 40}))
    facts = ScanFacts(scanned(tmp_path / "d.jsonl", tmp_path / "out", corpus=False))
    wanted = [i for i in range(63) if i not in {6, 8, 43}]  # lines that are not blank
    records = {}
    for number, row in enumerate(wanted):
        if number not in BAD:
            said = f"d says {number}."
            fits = lambda record, said=said: record["output"].startswith(said)  # noqa: E731
            records[number] = facts.rows.clean(Key(facts.summary["sources"][0]["name"], row), fits)
    assert all(record is not None and record["instruction"] == f"d {n}" for n, record in records.items())


def test_reasons_are_counted_by_the_strongest(two_sources: Path) -> None:
    facts = ScanFacts(two_sources)
    assert facts.reasons == {"structure.empty-output": 2 * len(BAD)}
    assert len(list(facts.rows.quarantined_keys())) == 2 * len(BAD)
