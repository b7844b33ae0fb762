"""Decisions of a reviewer, carried out: the records are back in their places, and the next scan knows."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest
from click.testing import CliRunner
from report_scans import scanned

from cleanse.cli import main
from cleanse.report.decisions import Decision, save
from cleanse.report.page import FILE, build
from cleanse.report.scan_facts import ScanFacts


def run(*arguments: object) -> None:
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output


@pytest.fixture
def out(tmp_path: Path) -> Path:
    records = []
    for i in range(40):
        text = f"Answer {i} is a sentence." + "\u202e" * (i % 10 == 3)
        records.append({"instruction": f"Question {i}?", "input": "", "output": text})
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8")
    return scanned(tmp_path / "d.jsonl", tmp_path / "out", corpus=False)


def asked(folder: Path) -> list[str]:
    return datasets.load_from_disk(str(folder))["instruction"][:]


def test_released_records_go_back_and_a_new_scan_honours_it(out: Path, tmp_path: Path) -> None:
    held = [key.id for key in ScanFacts(out).rows.quarantined_keys()]
    assert len(held) == 4
    save(out / "decisions.json", [Decision(held[1], "release", "a test"), Decision(held[2], "agree")])
    run("release", out, "--from", out / "decisions.json")
    assert asked(out / "clean") == [f"Question {i}?" for i in range(40) if i not in {3, 23, 33}]
    assert asked(out / "quarantine") == [f"Question {i}?" for i in (3, 23, 33)]

    html = (out / FILE).read_text("utf-8")
    assert "40 records were read, 3 are held back." in html
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    (released,) = [record for record in data["records"] if record["state"] == "released"]
    assert released["id"] == held[1]
    assert any(field["pieces"] for field in released["fields"])
    assert html.encode() == build(ScanFacts(out))

    run(
        "scan",
        tmp_path / "d.jsonl",
        "-o",
        tmp_path / "again",
        "--probe",
        "none",
        "--workers",
        1,
        "--allow",
        out / "allow.json",
    )
    assert asked(tmp_path / "again" / "quarantine") == [f"Question {i}?" for i in (3, 23, 33)]


def test_a_running_review_sees_the_release(out: Path) -> None:
    pytest.importorskip("starlette", reason="the review server's framework is not installed: extra [review]")
    from cleanse.report.listing import Filter
    from cleanse.report.server import Review

    review = Review(out)
    before = review.records(Filter(), 0, 10)
    assert before["total"] == 4
    review.decide([{"id": before["records"][0]["id"], "decision": "release", "note": ""}])
    run("release", out, "--from", out / "decisions.json")
    assert review.records(Filter(), 0, 10)["total"] == 3
    (freed,) = review.records(Filter(state="released"), 0, 10)["records"]
    assert freed["id"] == before["records"][0]["id"]
