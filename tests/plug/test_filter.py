from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import dill
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets.fingerprint import Hasher

import cleanse
from cleanse.errors import UsageError
from cleanse.plug import judging
from cleanse.rulepack_schema import PackError
from scripts.make_sample import sample

RULE = """
[[rule]]
id = "mine.word"
summary = "The word"
why = "A test needs it."
measure = "bytes"
limit = {{ max = {limit} }}
action = "reject"
should_match = [{{ repeat = "x", times = {more} }}]
should_pass = ["x"]
since = "0.1"
"""


def write_rule(path: Path, limit: int) -> Path:
    path.write_text(RULE.format(limit=limit, more=limit + 1))
    return path


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> Path:
    """The demo's sample, without the lines that are no records."""
    path = tmp_path_factory.mktemp("sample") / "sample.jsonl"
    good = []
    for line in sample(1300).splitlines():
        try:
            record = json.loads(line)
            json.dumps(record, ensure_ascii=False).encode()
        except ValueError:
            continue
        good.append(line)
    path.write_bytes(b"\n".join(good) + b"\n")
    return path


@pytest.fixture
def ds(lines: Path, tmp_path: Path) -> datasets.Dataset:
    return datasets.Dataset.from_json(str(lines), cache_dir=str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def scanned(lines: Path, tmp_path_factory) -> cleanse.ScanResult:
    return cleanse.scan(lines, tmp_path_factory.mktemp("scan") / "o", probe="none", corpus=False, workers=1)


@pytest.fixture(scope="module")
def held(scanned: cleanse.ScanResult) -> list[int]:
    rows = scanned.load_quarantine()["cleanse_row"][:]
    assert len(rows) > 10
    return rows


def outputs(records: Any) -> list[str]:
    return [record["output"] for record in records]


def test_filter_keeps_what_the_scan_keeps(ds, scanned) -> None:
    kept = ds.filter(cleanse.Filter(), batched=True)
    repaired = kept.map(cleanse.Filter().repair, batched=True)
    assert repaired.to_list() == scanned.load_clean().to_list()
    assert kept.to_list() != repaired.to_list()  # a repair was there to be made


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars", "numpy", "torch", None])
def test_every_format_gives_the_same_verdicts(ds, held, kind: str | None) -> None:
    if kind == "torch":
        pytest.importorskip("torch")
    numbered = ds.add_column("number", list(range(len(ds)))).with_format(kind)
    kept = numbered.filter(cleanse.Filter(), batched=True).with_format(None)["number"][:]
    assert sorted(set(range(len(ds))) - set(kept)) == held
    repaired = numbered.map(cleanse.Filter().repair, batched=True).with_format(None)
    plain = ds.map(cleanse.Filter().repair, batched=True)
    assert outputs(repaired) == outputs(plain)


@pytest.mark.parametrize("kind", ["arrow", None])
def test_streams_and_processes_and_batches_do_not_matter(ds, held, kind: str | None) -> None:
    numbered = ds.add_column("number", list(range(len(ds))))
    filt = cleanse.Filter()
    stream = numbered.to_iterable_dataset(num_shards=3).with_format(kind).filter(filt, batched=True, batch_size=77)
    kept = [record["number"] for record in stream.with_format(None)]
    assert sorted(set(range(len(ds))) - set(kept)) == held
    spread = numbered.filter(filt, batched=True, num_proc=2, batch_size=301)
    assert sorted(set(range(len(ds))) - set(spread["number"][:])) == held
    both = datasets.DatasetDict(a=numbered.select(range(700)), b=numbered.select(range(700, len(ds))))
    parts = both.filter(filt, batched=True)
    assert sorted(set(range(len(ds))) - {*parts["a"]["number"], *parts["b"]["number"]}) == held


def test_annotate_tells_what_the_scan_found(ds, scanned, held) -> None:
    told = ds.map(cleanse.Filter().annotate, batched=True, batch_size=100)
    verdicts = told["cleanse_verdict"][:]
    assert [i for i, verdict in enumerate(verdicts) if verdict == "quarantine"] == held
    assert verdicts.count("repair") == scanned.repaired > 0
    assert sum(v in {"quarantine", "suspect"} for v in verdicts) == scanned.suspected
    reasons = {i: r for i, r in enumerate(told["cleanse_reasons"][:]) if verdicts[i] == "quarantine"}
    quarantine = scanned.load_quarantine()
    assert list(reasons.values()) == quarantine["cleanse_reasons"][:]
    found = [
        {"row": row, **finding} for row, findings in enumerate(told["cleanse_findings"][:]) for finding in findings
    ]
    wanted = [
        {k: v for k, v in f.items() if k != "source"} for f in scanned.load_findings().to_pylist() if f["row"] >= 0
    ]
    assert found == [f for f in wanted if not f["rule"].startswith("reader.")]
    assert told.remove_columns([c for c in told.column_names if c.startswith("cleanse_")]).to_list() == ds.to_list()


def test_annotate_of_a_stream_says_the_same(ds) -> None:
    told = ds.map(cleanse.Filter().annotate, batched=True)
    streamed = list(ds.to_iterable_dataset().map(cleanse.Filter().annotate, batched=True))
    assert streamed == told.to_list()


def test_annotate_overwrites_nothing(ds) -> None:
    told = ds.map(cleanse.Filter().annotate, batched=True)
    with pytest.raises(UsageError, match="cleanse_findings"):
        told.map(cleanse.Filter().annotate, batched=True)


def test_chats(tmp_path: Path) -> None:
    def talk(said: str) -> dict[str, Any]:
        turns = [("user", said), ("assistant", "Rivers carry snow water to the sea.")]
        return {"messages": [{"role": role, "content": content} for role, content in turns]}

    talks = [talk("Where does the water go?"), talk("Where\u202e does it go?"), talk("a\u200bnd th\u200bis?")]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(t) + "\n" for t in talks))
    result = cleanse.scan(tmp_path / "d.jsonl", tmp_path / "o", probe="none", corpus=False, workers=1)
    assert (result.quarantined, result.repaired) == (1, 1)
    ds = datasets.Dataset.from_list(talks)
    for made in (ds, ds.to_iterable_dataset(), ds.with_format("numpy"), ds.with_format("arrow")):
        kept = made.filter(cleanse.Filter(), batched=True).map(cleanse.Filter().repair, batched=True)
        assert list(kept.with_format(None)) == result.load_clean().to_list()


def test_python_records_that_no_file_could_hold() -> None:
    texts = ["All is well here.", "lone \ud83d surrogate", None, "All is well there."]
    assert cleanse.Filter()({"text": texts})[::3] == [True, True]
    assert not cleanse.Filter()({"text": texts})[1]
    told = cleanse.Filter().annotate({"text": texts})
    assert told["cleanse_reasons"][1] == ["reader.lone-surrogate"]
    mixed = cleanse.Filter().annotate({"text": ["All is well here.", 5, ["a list"], {"an": "object"}]})
    assert len(mixed["cleanse_verdict"]) == 4


def test_a_batch_is_asked_for(ds) -> None:
    with pytest.raises(UsageError, match="batched=True"):
        ds.filter(cleanse.Filter())
    with pytest.raises(UsageError, match="batched=True"):
        ds.map(cleanse.Filter().annotate)
    with pytest.raises(UsageError, match="batched=True"):
        list(ds.to_iterable_dataset().filter(cleanse.Filter()))
    with pytest.raises(UsageError, match="suspects is 'drop'"):
        cleanse.Filter(suspects="drop")


def test_a_column_changed_before_us_is_what_counts(ds) -> None:
    def broken(batch: Any) -> list[bool]:
        batch["output"] = ["x\u202ey"] * len(batch["output"])
        return cleanse.Filter()(batch)

    assert len(ds.filter(broken, batched=True)) == 0


class Counted:
    """Counts the batches that were judged."""

    def __init__(self, monkeypatch) -> None:
        self.n = 0
        judge = judging.Judge.judge

        def counting(this: Any, block: Any) -> Any:
            self.n += 1
            return judge(this, block)

        monkeypatch.setattr(judging.Judge, "judge", counting)


def test_a_second_run_does_no_work(ds, tmp_path: Path, monkeypatch) -> None:
    pack = str(write_rule(tmp_path / "mine.toml", 50_000))
    counted = Counted(monkeypatch)

    def run() -> list[int]:
        filt = cleanse.Filter(["default", pack])
        kept = ds.filter(filt, batched=True)
        return [len(kept), len(kept.map(filt.annotate, batched=True)), len(kept.map(filt.repair, batched=True))]

    first = run()
    assert counted.n > 0
    counted.n = 0
    assert run() == first
    assert counted.n == 0
    write_rule(tmp_path / "mine.toml", 60)
    changed = run()
    assert counted.n > 0
    assert changed[0] < first[0]


SECOND = """
import sys, datasets, cleanse
from cleanse.plug import judging
from cleanse.rulepack_schema import PackError
def judge(*_): raise SystemExit("work was done")
if sys.argv[3] == "again":
    judging.Judge.judge = judge
ds = datasets.Dataset.from_json(sys.argv[1], cache_dir=sys.argv[2])
print(len(ds.filter(cleanse.Filter(), batched=True, num_proc=int(sys.argv[4]) or None)))
"""


@pytest.mark.parametrize("processes", [0, 2])
def test_the_cache_is_found_by_another_process(lines: Path, tmp_path: Path, processes: int, held) -> None:
    counts = []
    for number, order in enumerate(["first", "again"]):
        arguments = [sys.executable, "-c", SECOND, str(lines), str(tmp_path), order, str(processes)]
        environment = {**os.environ, "PYTHONHASHSEED": str(number)}
        done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
        counts.append(int(done.stdout.split()[-1]))
    assert counts[0] == counts[1] == len(lines.read_bytes().splitlines()) - len(held)


def test_what_changes_a_verdict_changes_the_fingerprint(tmp_path: Path) -> None:
    pack = str(write_rule(tmp_path / "mine.toml", 100))
    made = [
        cleanse.Filter(),
        cleanse.Filter(["default", pack]),
        cleanse.Filter(suspects="quarantine"),
        cleanse.Filter(format="alpaca"),
        cleanse.Filter(text_column="text"),
        cleanse.Filter(max_record_bytes=99),
    ]
    write_rule(tmp_path / "mine.toml", 101)
    made.append(cleanse.Filter(["default", pack]))
    assert len({f.fingerprint for f in made}) == len({Hasher.hash(f) for f in made}) == len(made)
    assert Hasher.hash(cleanse.Filter().annotate) == Hasher.hash(cleanse.Filter().annotate)
    assert Hasher.hash(cleanse.Filter().annotate) != Hasher.hash(cleanse.Filter().repair)


@pytest.mark.parametrize("way", [pickle, dill])
def test_a_filter_travels(way, tmp_path: Path) -> None:
    pack = write_rule(tmp_path / "mine.toml", 10)
    sent = way.dumps(cleanse.Filter([str(pack)]))
    pack.unlink()
    arrived = way.loads(sent)
    assert arrived({"text": ["short", "longer than ten"]}) == [True, False]
    assert arrived.fingerprint == way.loads(way.dumps(arrived)).fingerprint


def test_the_format_of_a_dataset_holds_for_every_batch() -> None:
    rows = [{"prompt": "What is it?", "completion": "A river.", "label": True}] * 3
    filt = cleanse.Filter().like(rows)
    # Alone, a label that is no yes or no would make this another format.
    assert filt({"prompt": ["What?"], "completion": ["x\u202ey"], "label": ["odd"]}) == [False]
    assert filt.fingerprint != cleanse.Filter().fingerprint
    assert filt.like(rows) is filt


def test_large_records_are_not_kept() -> None:
    texts = ["All is well with this line of text.", "All is well with this line of text, too. " * 50]
    table = pa.table({"text": texts})
    assert cleanse.Filter(max_record_bytes=1000)(table) == [True, False]
    assert cleanse.Filter(max_record_bytes=1000)({"text": texts}) == [True, False]


def test_bytes_that_are_no_text_in_arrow_data() -> None:
    good, bad = "All is well with this line of text.", b"It\x92s"
    column = pa.array([good.encode(), bad, good.encode()], pa.binary()).view(pa.string())
    table = pa.table({"text": column})
    assert cleanse.Filter()(table) == [True, False, True]
    told = cleanse.Filter().annotate(table)
    assert told.column("cleanse_reasons").to_pylist() == [[], ["reader.invalid-utf8"], []]
    assert np.all(np.asarray(cleanse.Filter().repair(table).column("text").is_valid()))


def test_parquet_is_judged_as_the_scan_judges_it(tmp_path: Path) -> None:
    text = pa.array(["A plain sentence about rivers.", "x\u202ey", "Some more words on boats."], pa.large_string())
    table = pa.table({"text": text.dictionary_encode(), "score": pa.array([1, None, 3], pa.int16())})
    pq.write_table(table, tmp_path / "d.parquet")
    result = cleanse.scan(tmp_path / "d.parquet", tmp_path / "o", probe="none", corpus=False, workers=1)
    kept = datasets.Dataset.from_parquet(str(tmp_path / "d.parquet"), cache_dir=str(tmp_path / "c")).filter(
        cleanse.Filter(), batched=True
    )
    assert kept["score"][:] == result.load_clean()["score"][:] == [1, 3]


def test_a_probe_that_cannot_run_is_no_secret(monkeypatch) -> None:
    from cleanse.probing import recipes

    monkeypatch.setattr(recipes, "find_spec", lambda _: None)
    with pytest.warns(UserWarning, match="suspects stay unproven"):
        cleanse.Filter(probe="auto")
    with pytest.raises(UsageError, match="torch is not installed"):
        cleanse.Filter(probe="thorough")


def test_asking_for_a_filter_loads_no_framework() -> None:
    code = "import sys, cleanse; cleanse.Filter(); print({'torch', 'mindspore', 'datasets', 'ray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_one_pack_may_be_named_alone() -> None:
    with pytest.raises(PackError, match="'nopack'"):
        cleanse.Filter(rules="nopack")
