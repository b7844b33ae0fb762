from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import dirty
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cleanse
from cleanse.config import ScanConfig
from cleanse.errors import CleanseError, NoRecordsError, UsageError
from cleanse.pipeline import scan
from cleanse.sources import ReadOptions
from cleanse.trainer_view.asking import token_source
from scripts.kill_test import digest

N = 600


def config(inputs: list[Path] | Path, out: Path, **changes) -> ScanConfig:
    several = inputs if isinstance(inputs, list) else [inputs]
    changes.setdefault("read", ReadOptions(shard_bytes=20_000, block_bytes=8_000))
    return ScanConfig(inputs=tuple(map(str, several)), out=out, probe=None, **{"workers": 1, **changes})


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> tuple[Path, dict[int, str]]:
    path = tmp_path_factory.mktemp("in") / "d.jsonl"
    return path, dirty.write(path, N)


@pytest.fixture(scope="module")
def scanned(source, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("out") / "o"
    scan(config(source[0], out, emit=("arrow", "jsonl", "parquet")))
    return out


def test_every_record_is_in_one_place_in_input_order(source, scanned: Path) -> None:
    path, kinds = source
    lines = path.read_bytes().splitlines()
    held = [row for row, kind in kinds.items() if kind in dirty.HELD]
    quarantine = datasets.load_from_disk(str(scanned / "quarantine"))
    assert quarantine["cleanse_row"][:] == held
    assert quarantine["cleanse_id"][:] == [f"{path}:{row}" for row in held]
    clean = datasets.load_from_disk(str(scanned / "clean"))
    kept = [row for row, line in enumerate(lines) if line and row not in held]
    assert len(clean) == len(kept)
    assert [i for i in clean["id"][:] if i not in (900004, "five")] == [r for r in kept if r not in kinds]
    assert len(list((scanned / "clean").glob("*.arrow"))) > 1  # several units: the test would be weak with one


def test_quarantine_keeps_the_bytes_of_what_had_no_form(source, scanned: Path) -> None:
    for row in datasets.load_from_disk(str(scanned / "quarantine")):
        kind = source[1][row["cleanse_row"]]
        raw = {"utf8": dirty.BAD_UTF8, "surrogate": dirty.SURROGATE}.get(kind)
        assert row["cleanse_raw"] == raw
        assert (row["instruction"] is None) == (raw is not None)
        assert row["cleanse_reasons"], kind


def test_jsonl_repeats_what_was_not_mended(source, scanned: Path) -> None:
    path, kinds = source
    wanted = [
        line for row, line in enumerate(path.read_bytes().splitlines()) if line and kinds.get(row) not in dirty.HELD
    ]
    written = (scanned / "clean.jsonl").read_bytes().splitlines()
    assert len(written) == len(wanted)
    changed = [(old, new) for old, new in zip(wanted, written, strict=True) if old != new]
    assert {old for old, _ in changed} == {dirty.ZERO_WIDTH}
    assert {json.loads(new)["output"] for _, new in changed} == {"plain text here"}


def test_repairs_are_in_clean_and_before_them_in_findings(scanned: Path) -> None:
    clean = datasets.load_from_disk(str(scanned / "clean"))
    assert [r["output"] for r in clean if r["id"] == 900004] == ["plain text here"] * 2
    found = pq.read_table(scanned / "findings.parquet").filter(pa.compute.field("action") == "repair").to_pylist()
    assert {f["field"] for f in found} == {"output"}
    assert all("u200b" in f["excerpt"] for f in found)


def test_parquet_holds_the_same_records(scanned: Path) -> None:
    clean = datasets.load_from_disk(str(scanned / "clean"))
    assert pq.read_table(scanned / "clean.parquet").to_pylist() == clean.with_format("arrow")[:].to_pylist()


def test_findings_are_by_row_and_include_what_only_the_whole_input_shows(source, scanned: Path) -> None:
    found = pq.read_table(scanned / "findings.parquet")
    rows = found.column("row").to_pylist()
    assert rows == sorted(rows)
    mixed = {f["row"] for f in found.to_pylist() if "mixed" in f["rule"]}
    assert mixed == {row for row, kind in source[1].items() if kind == "mixed"} or len(mixed) > N // 2
    blank = [f for f in found.to_pylist() if "blank-lines" in f["rule"]]
    assert [(f["row"], f["value"]) for f in blank] == [(97, 6.0)]  # one for the source, not one per shard


def test_the_summary_adds_up(source, scanned: Path) -> None:
    summary = json.loads((scanned / "summary.json").read_text())
    counts = summary["counts"]
    assert counts["read"] == counts["clean"] + counts["quarantined"] == N - 6
    assert counts["blank_lines"] == 6
    assert counts["findings"] == pq.read_metadata(scanned / "findings.parquet").num_rows
    assert counts["findings"] == sum(rule["findings"] for rule in summary["rules"].values())
    (described,) = summary["sources"]
    digest = subprocess.run(["sha256sum", source[0]], capture_output=True, check=True, text=True).stdout.split()[0]
    assert (described["sha256"], described["name"], described["read"]) == (digest, str(source[0]), N - 6)
    assert described["format"].startswith("alpaca")


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_do_not_change_a_byte(source, scanned: Path, tmp_path: Path, workers: int) -> None:
    scan(config(source[0], tmp_path / "o", emit=("arrow", "jsonl", "parquet"), workers=workers))
    assert digest(tmp_path / "o") == digest(scanned)


_PERTURBED = """
import sys
from pathlib import Path
from typing import Any
from cleanse.config import ScanConfig
from cleanse.pipeline import scan
from cleanse.sources import ReadOptions
from cleanse.trainer_view.asking import token_source
scan(ScanConfig(inputs=(sys.argv[1],), out=Path(sys.argv[2]), probe=None, workers=1, emit=("arrow", "jsonl", "parquet"),
     read=ReadOptions(shard_bytes=20_000, block_bytes=8_000)))
"""


def test_no_uninitialised_memory_reaches_the_output(source, scanned: Path, tmp_path: Path) -> None:
    # glibc fills fresh memory with a pattern: padding or values under nulls that nobody wrote would show it
    environment = {**os.environ, "MALLOC_PERTURB_": "165", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    arguments = [sys.executable, "-c", _PERTURBED, str(source[0]), str(tmp_path / "o")]
    subprocess.run(arguments, env=environment, check=True)
    assert digest(tmp_path / "o") == digest(scanned)


def test_shards_decide_files_but_not_records(source, scanned: Path, tmp_path: Path) -> None:
    scan(config(source[0], tmp_path / "o", read=ReadOptions()))
    for name in ("clean", "quarantine"):
        one = datasets.load_from_disk(str(tmp_path / "o" / name)).with_format("arrow")[:]
        assert one.equals(datasets.load_from_disk(str(scanned / name)).with_format("arrow")[:])
    findings = [pq.read_table(out / "findings.parquet") for out in (tmp_path / "o", scanned)]
    assert findings[0].equals(findings[1])


def test_suspects_and_repairs_follow_the_options(source, tmp_path: Path) -> None:
    kept = scan(config(source[0], tmp_path / "kept", repair=False))
    assert kept.repaired == 0
    texts = [r["output"] for r in kept.load_clean() if r["id"] == 900004]
    assert texts == ["plain\u200b tex\u200bt here"] * 2
    strict = scan(config(source[0], tmp_path / "strict", suspects="quarantine"))
    assert strict.quarantined == strict.suspected == kept.suspected


def test_several_sources_keep_their_own_rows(source, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    kinds = dirty.write(other, 90, seed=5)
    result = scan(config([source[0], other], tmp_path / "o"))
    quarantine = result.load_quarantine()
    pairs = list(zip(quarantine["cleanse_source"][:], quarantine["cleanse_row"][:], strict=True))
    assert [row for name, row in pairs if name == str(other)] == [r for r, kind in kinds.items() if kind in dirty.HELD]
    assert [s["read"] for s in result.summary["sources"]] == [N - 6, 90]
    sources = result.load_findings().column("source").to_pylist()
    assert sources == sorted(sources, key=[str(source[0]), str(other)].index)


def test_a_finished_run_says_so_and_does_nothing(source, tmp_path: Path) -> None:
    wanted = config(source[0], tmp_path / "o")
    first = scan(wanted)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "o").rglob("*") if ".cleanse" not in p.parts}
    again = scan(wanted)
    assert (first.already_done, again.already_done) == (False, True)
    assert again.summary == first.summary
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "o").rglob("*") if ".cleanse" not in p.parts}


def test_a_finished_run_of_changed_input_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    dirty.write(path, 50)
    scan(config(path, tmp_path / "o"))
    dirty.write(path, 60)
    with pytest.raises(CleanseError, match=r"input changed since this run began.*d\.jsonl"):
        scan(config(path, tmp_path / "o"))


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
def test_no_records_leave_no_output(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "d.jsonl").write_bytes(content)
    with pytest.raises(NoRecordsError, match=r"no records in .*d\.jsonl"):
        scan(config(tmp_path / "d.jsonl", tmp_path / "o"))
    assert not (tmp_path / "o").exists()


def test_nothing_but_strays_is_all_quarantine(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_bytes(b'{"text": "a\xff"}\nnot json\n[1]\n')
    result = scan(config(tmp_path / "d.jsonl", tmp_path / "o"))
    assert (result.read, result.clean, result.quarantined) == (3, 0, 3)
    assert len(result.load_clean()) == 0
    assert result.load_quarantine()["cleanse_raw"][:] == [b'{"text": "a\xff"}', b"not json", b"[1]"]


def test_nothing_held_gives_an_empty_quarantine_that_loads(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"text": "All is well with this line of text."}\n')
    result = scan(config(tmp_path / "d.jsonl", tmp_path / "o"))
    quarantine = result.load_quarantine()
    assert (result.clean, len(quarantine)) == (1, 0)
    assert quarantine.column_names == [
        "text",
        "cleanse_id",
        "cleanse_source",
        "cleanse_row",
        "cleanse_reasons",
        "cleanse_raw",
    ]


def test_the_quarantine_of_one_scan_can_be_scanned(scanned: Path, tmp_path: Path) -> None:
    result = scan(config(scanned / "quarantine", tmp_path / "o"))
    assert result.read == len(datasets.load_from_disk(str(scanned / "quarantine")))
    assert "input_cleanse_reasons" in result.load_quarantine().column_names


def test_typed_columns_keep_their_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": pa.array(
                ["A plain sentence about rivers.", "x\u202ey", "Some more words on boats."], pa.large_string()
            ),
            "score": pa.array([1, None, 3], pa.int16()),
            "when": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
            "tags": pa.array([["a"], [], None], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        }
    )
    pq.write_table(table, tmp_path / "d.parquet")
    result = scan(config(tmp_path / "d.parquet", tmp_path / "o", emit=("arrow", "jsonl")))
    clean = result.load_clean()
    assert clean.features["score"].dtype == "int16"
    assert clean.features["when"].dtype == "timestamp[us, tz=UTC]"
    assert clean["score"][:] == [1, 3]
    assert result.load_quarantine()["when"][0].year == 1970
    assert [json.loads(line)["tags"] for line in (tmp_path / "o" / "clean.jsonl").read_text().splitlines()] == [
        ["a"],
        None,
    ]


def test_the_public_call_takes_plain_arguments(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"text": "All is well with this line of text."}\n')
    result = cleanse.scan(tmp_path / "d.jsonl", tmp_path / "o", workers=1, probe="none")
    assert isinstance(result, cleanse.ScanResult)
    with pytest.raises(UsageError, match="suspects is 'drop': expected one of keep, quarantine"):
        cleanse.scan([tmp_path / "d.jsonl"], tmp_path / "o2", suspects="drop", probe="none")
    with pytest.raises(cleanse.UsageError, match="no input given"):
        cleanse.scan([], tmp_path / "o2", probe="none")


def test_a_tokenizer_brings_its_rules_into_the_scan(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    plain = Tokenizer(models.WordLevel({"[UNK]": 0, "alpha": 1, "ok": 2}, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    plain.save(str(tmp_path / "tokenizer.json"))
    data = tmp_path / "d.jsonl"
    rows = [{"prompt": "alpha " * n, "completion": "ok"} for n in (3, 900, 5)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = token_source(str(tmp_path / "tokenizer.json"), training={"max_length": 64})
    result = scan(config(data, tmp_path / "o", tokens=source))
    assert [r["cleanse_row"] for r in result.load_quarantine()] == [1]
    found = result.load_findings().to_pylist()
    assert [f["row"] for f in found if f["rule"] == "trainer.no-supervised-tokens"] == [1]
    assert result.summary["configuration"]["trainer"]["max_length"] == 64


@pytest.mark.parametrize("options", [{"max_length": 64}, {"trainer": "trl"}])
def test_training_options_need_a_tokenizer(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="tokenizer"):
        token_source(None, None, options)
