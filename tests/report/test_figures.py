"""Pictures of what the probe measured: made from a small probe.parquet whose every value is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cleanse.report.figures import distributions
from cleanse.report.page import build
from cleanse.report.rows import Key
from cleanse.report.scan_facts import ScanFacts
from cleanse.report.scatter import MOST_POINTS, probed

CONTROLS = 600


def test_points_are_drawn_and_lead_to_records(probed_out: Path) -> None:
    figure, keys = probed(ScanFacts(probed_out))
    assert figure is not None
    assert figure.facts["n"] == {"control": CONTROLS, "suspect": 2, "convicted": 1}  # one has no finite loss
    assert figure.facts["drawn"]["control"] == MOST_POINTS["control"]
    assert str(figure.svg).count("<a ") == len(keys) == MOST_POINTS["control"] + 3
    name = ScanFacts(probed_out).summary["sources"][0]["name"]
    assert Key(name, CONTROLS + 2) in keys
    assert "convicted, loss 9, gradient norm 80, p = 0.001" in figure.svg
    assert probed(ScanFacts(probed_out))[0].svg == figure.svg


def test_limits_stand_where_the_controls_leave_off(probed_out: Path) -> None:
    found = {figure.key: figure for figure in distributions(ScanFacts(probed_out))}
    assert {"length", "loss", "grad_norm"} <= set(found)
    assert found["loss"].limits == ["1 %", "99 %"]
    assert any(label.startswith("length.") for label in found["length"].limits)
    singles = [row for row in found["loss"].table if row[0] == "suspect"]
    assert [row[1] for row in singles] == ["3", "3.1", "9"]
    shares = [float(row[2]) for row in found["loss"].table if row[0] == "control"]
    assert sum(shares) == pytest.approx(100, abs=0.5)


def test_lengths_are_those_that_the_scan_counted(probed_out: Path) -> None:
    facts = ScanFacts(probed_out)
    (length,) = [figure for figure in distributions(facts) if figure.key == "length"]
    counted = sum(int(float(row[2])) for row in length.table)
    unparsed = sum(rule["records"] for rule in facts.rules if rule["id"] == "reader.invalid-utf8")
    assert counted == facts.counts["read"] - unparsed


def test_the_page_has_the_picture_its_records_and_the_shaded_tokens(probed_out: Path) -> None:
    html = build(ScanFacts(probed_out)).decode()
    assert 'id="fig-scatter-t"' in html
    assert "a &lt;note&gt;" in html
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    by_id = {record["id"]: record for record in data["records"]}
    _, keys = probed(ScanFacts(probed_out))
    assert {key.id for key in keys} <= set(by_id)
    convicted = by_id[keys[-1].id]
    assert convicted["probe"]["loss"] == 9.0
    assert convicted["probe"]["tokens"] == [
        "a<",
        {"k": 3, "l": 9.0, "t": [{"h": "ZERO WIDTH SPACE", "c": "U+200B", "n": 1}]},
        " c",
    ]
    assert "NaN" not in html
