"""The probe inside a scan: what is replayed, what is convicted, what is told."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cleanse.config import ScanConfig
from cleanse.errors import UsageError
from cleanse.pipeline import scan
from cleanse.probing.settings import ProbeSettings
from cleanse.sources import ReadOptions

WORDS = [
    "the",
    "a",
    "river",
    "stone",
    "walks",
    "slowly",
    "over",
    "under",
    "green",
    "house",
    "and",
    "then",
    "it",
    "rains",
]


def sentence(rng: random.Random, n: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(n)).capitalize() + "."


def write(path: Path, n: int, odd: dict[int, str]) -> Path:
    rng = random.Random(5)
    rows = [{"text": odd.get(i, sentence(rng, rng.randint(8, 60)))} for i in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def run(path: Path, out: Path, pack: Path, **settings: object) -> tuple[object, list[dict[str, object]]]:
    probe = ProbeSettings(**settings)
    config = ScanConfig(
        (str(path),), out, packs=("probe", str(pack)), probe=probe, workers=1, read=ReadOptions(shard_bytes=20_000)
    )
    result = scan(config)
    return result, pq.read_table(out / "findings.parquet").to_pylist()


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    path = tmp_path / "odd.toml"
    path.write_text(
        '[[rule]]\nid = "odd.word"\nsummary = "odd"\nwhy = "odd"\npattern = "odd"\naction = "suspect"\n'
        'should_match = ["odd"]\nshould_pass = ["even"]\nsince = "0.1"\n'
    )
    return path


def test_a_suspect_is_convicted_only_when_the_model_agrees(fake_probe: None, tmp_path: Path, pack: Path) -> None:
    rng = random.Random(1)
    odd = {40: "odd " + sentence(rng, 30), 77: "odd spike " + sentence(rng, 30), 500: "spike " + sentence(rng, 30)}
    data = write(tmp_path / "d.jsonl", 1_500, odd)
    result, found = run(data, tmp_path / "o", pack, scope="suspects", budget=0.01)
    assert {f["row"]: f["rule"] for f in found if f["rule"].startswith("probe.")} == {
        40: "probe.ordinary",
        77: "probe.spike",
    }
    # Nobody suspects row 500, so it may be a control, but it is not on trial.
    assert [r["cleanse_row"] for r in result.load_quarantine()] == [77]
    told = next(f for f in found if f["rule"] == "probe.spike")
    assert "above what 32 tokens of Latn have here" in told["message"]
    assert "gradient norm" in told["message"]
    account = result.summary["evidence"]["probe"]
    assert (account["suspects"], account["convicted"]) == (2, 1)
    assert 600 <= account["controls"] <= 1_497


def test_scope_all_tries_every_record_within_the_budget(fake_probe: None, tmp_path: Path, pack: Path) -> None:
    rng = random.Random(1)
    data = write(tmp_path / "d.jsonl", 1_200, {500: "spike " + sentence(rng, 30), 900: "nan " + sentence(rng, 9)})
    result, found = run(data, tmp_path / "o", pack, scope="all", budget=0.01)
    convicted = {f["row"]: f["rule"] for f in found if f["action"] == "reject"}
    assert convicted[500] == "probe.spike"
    assert convicted[900] == "probe.not-finite"
    assert len(convicted) <= 0.01 * 1_200 + 1
    probed = pq.read_table(tmp_path / "o" / "probe.parquet")
    assert probed.num_rows == 1_200
    assert probed.column("row").to_pylist() == list(range(1_200))
    assert probed.column("batch")[500].as_py() == f"{data}:496-503"
    assert result.read == result.clean + result.quarantined == 1_200


def test_a_batch_that_spikes_is_named(fake_probe: None, tmp_path: Path, pack: Path) -> None:
    rng = random.Random(1)
    data = write(tmp_path / "d.jsonl", 800, {500: "spike " * 400 + sentence(rng, 3)})
    _, found = run(data, tmp_path / "o", pack, scope="all", budget=0.01)
    batches = [f for f in found if f["rule"] == "probe.batch"]
    assert [f["row"] for f in batches] == [496]
    assert "496-503" in batches[0]["message"]


def test_too_few_controls_are_told_and_convict_nobody(fake_probe: None, tmp_path: Path, pack: Path) -> None:
    data = write(tmp_path / "d.jsonl", 30, {3: "odd spike and more"})
    result, found = run(data, tmp_path / "o", pack)
    assert "too few" in result.summary["evidence"]["probe"]["notes"][0]
    assert [f["rule"] for f in found if f["rule"].startswith("probe.")] == ["probe.ordinary"]
    assert result.quarantined == 0


def test_without_suspects_nothing_is_replayed(fake_probe: None, tmp_path: Path, pack: Path) -> None:
    data = write(tmp_path / "d.jsonl", 100, {})
    result, _ = run(data, tmp_path / "o", pack, scope="suspects")
    assert result.summary["evidence"]["probe"]["probed"] == 0
    assert result.clean == 100


def test_controls_do_not_depend_on_shards(fake_probe: None, tmp_path: Path, pack: Path) -> None:
    rng = random.Random(1)
    data = write(tmp_path / "d.jsonl", 3_000, {77: "odd spike " + sentence(rng, 30)})
    probed = []
    for size in (5_000, 70_000, 10_000_000):
        out = tmp_path / f"o{size}"
        config = ScanConfig(
            (str(data),),
            out,
            packs=("probe", str(pack)),
            probe=ProbeSettings(scope="suspects", budget=0.01),
            workers=1,
            read=ReadOptions(shard_bytes=size),
        )
        scan(config)
        probed.append([repr(row) for row in pq.read_table(out / "probe.parquet").to_pylist()])
    assert probed[0] == probed[1] == probed[2]
    assert len(probed[0]) < 1_500


def test_half_precision_is_predicted_where_it_is_asked_for(fake_probe: None, tmp_path: Path, pack: Path) -> None:
    rng = random.Random(1)
    odd = {40: "wide " + sentence(rng, 30), 77: "steep " + sentence(rng, 30)}
    data = write(tmp_path / "d.jsonl", 400, odd)

    def found(out: str, **settings: object) -> dict[int, tuple[str, str]]:
        _, findings = run(data, tmp_path / out, pack, scope="all", budget=0.01, **settings)
        half = ("probe.fp16-overflow", "probe.loss-scale")
        return {int(str(f["row"])): (str(f["rule"]), str(f["message"])) for f in findings if f["rule"] in half}

    assert found("o0") == {}
    dynamic = found("o1", fp16=True)
    assert {row: rule for row, (rule, _) in dynamic.items()} == {40: "probe.fp16-overflow", 77: "probe.loss-scale"}
    assert "activation of 100,000" in dynamic[40][1]
    assert "it bears in fp16 is 512, where the median record bears 4.1943e+06" in dynamic[77][1]
    static = found("o2", fp16=True, loss_scale=1024.0)
    assert static[77][0] == "probe.fp16-overflow"
    probed = pq.read_table(tmp_path / "o2" / "probe.parquet")
    assert probed.column("safe_loss_scale")[77].as_py() == 512
    # A scale that ordinary records do not bear is the run's fault, and no record is quarantined for it.
    assert {row: rule for row, (rule, _) in found("o3", fp16=True, loss_scale=2.0**24).items()} == {
        40: "probe.fp16-overflow",
        77: "probe.loss-scale",
    }
    summary = json.loads((tmp_path / "o3" / "summary.json").read_text())
    assert any("the run is at fault" in note for note in summary["evidence"]["probe"]["notes"])


def test_suspects_of_earlier_witnesses_are_replayed_too(fake_probe: None, tmp_path: Path) -> None:
    rng = random.Random(1)
    flood = "One record that stands in the corpus again and again. " + sentence(rng, 30)
    path = write(tmp_path / "d.jsonl", 400, dict.fromkeys(range(100, 220), flood))
    config = ScanConfig(
        (str(path),), tmp_path / "o", packs=("probe",), probe=ProbeSettings(scope="suspects", budget=0.01), workers=1
    )
    result = scan(config)
    findings = pq.read_table(tmp_path / "o" / "findings.parquet").to_pylist()
    suspected = {f["row"] for f in findings if f["rule"] == "corpus.flood"}
    assert len(suspected) > 100
    probed = pq.read_table(tmp_path / "o" / "probe.parquet").to_pylist()
    assert {row["row"] for row in probed if row["role"] == "suspect"} == suspected
    assert result.summary["evidence"]["probe"]["suspects"] == len(suspected)


@pytest.mark.parametrize("given", [{"loss_scale": 1024.0}, {"fp16": True, "loss_scale": -1.0}])
def test_a_loss_scale_needs_half_precision(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="loss scale"):
        ProbeSettings(**given)
