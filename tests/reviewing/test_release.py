from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import dirty
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cleanse
from cleanse import atomic
from cleanse.config import ScanConfig
from cleanse.errors import CleanseError, UsageError
from cleanse.pipeline import scan
from cleanse.reviewing import journal as journals
from cleanse.reviewing.allow import AllowList
from cleanse.reviewing.release import release
from cleanse.reviewing.selection import Wanted
from cleanse.sources import ReadOptions
from cleanse.summary import load_result

EMIT = ("arrow", "jsonl", "parquet")


def config(path: Path, out: Path, **changes: Any) -> ScanConfig:
    read = ReadOptions(shard_bytes=20_000, block_bytes=8_000)
    return ScanConfig((str(path),), out, **{"probe": None, "workers": 1, "read": read, "emit": EMIT, **changes})


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("in") / "d.jsonl"
    dirty.write(path, 600)
    return path


@pytest.fixture(scope="module")
def first(source: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("out") / "o"
    scan(config(source, out))
    return out


@pytest.fixture
def out(first: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first, tmp_path / "o"))


def held(out: Path) -> list[dict[str, Any]]:
    return load_result(out).load_quarantine().to_list()


def formed(out: Path) -> list[str]:
    return [r["cleanse_id"] for r in held(out) if r["cleanse_raw"] is None]


def given(record: dict[str, Any]) -> dict[str, Any]:
    """A released record is written from its values: a column that its line did not have is null there."""
    return {k: v for k, v in record.items() if v is not None}


def state(out: Path) -> dict[str, Any]:
    """Everything that a release changes, as values."""
    result = load_result(out)
    counts = {k: v for k, v in result.summary.items() if k in {"counts", "rules", "sources"}}
    return {
        "clean": result.load_clean().to_list(),
        "quarantine": held(out),
        "findings": result.load_findings().to_pylist(),
        "parquet": pq.read_table(out / "clean.parquet").to_pylist(),
        "lines": [given(json.loads(line)) for line in (out / "clean.jsonl").read_text().splitlines()],
        "summary": counts,
        "held": pq.read_table(out / ".cleanse" / "held.parquet").to_pylist(),
    }


@pytest.mark.parametrize("seed", range(4))
def test_a_release_is_what_a_scan_with_the_allow_list_gives(source: Path, out: Path, tmp_path: Path, seed: int) -> None:
    ids = formed(out)
    chosen = random.Random(seed).sample(ids, [1, 5, len(ids) // 2, len(ids)][seed])
    done = release(out, Wanted(ids=chosen))
    assert sorted(done.ids) == sorted(chosen)
    assert done.result.released >= len(chosen)
    again = tmp_path / "again"
    scan(config(source, again, allow=(out / "allow.json",)))
    # One content may stand in several records: the list speaks of contents, a release of records.
    covered = set(formed(out)) - set(formed(again))
    if covered:
        release(out, Wanted(ids=sorted(covered)))
    assert not load_result(again).load_quarantine().filter(lambda r: r["cleanse_id"] in chosen).num_rows
    mine, theirs = state(out), state(again)
    for part in mine:
        assert mine[part] == theirs[part], part


def test_one_after_the_other_is_all_at_once(first: Path, out: Path, tmp_path: Path) -> None:
    ids = formed(out)
    for id_ in random.Random(5).sample(ids, len(ids)):
        release(out, Wanted(ids=[id_]))
    other = Path(shutil.copytree(first, tmp_path / "other"))
    release(other, Wanted(ids=ids))
    assert state(out) == state(other)
    assert AllowList.read([out / "allow.json"]).digest == AllowList.read([other / "allow.json"]).digest


def test_clean_stays_in_the_inputs_order_and_nothing_is_lost(source: Path, out: Path) -> None:
    before = load_result(out)
    result = release(out, Wanted(ids=formed(out))).result
    assert result.read == result.clean + result.quarantined == before.read
    assert (result.quarantined, result.clean) == (len(held(out)), len(result.load_clean()))
    lines = [line for line in source.read_bytes().split(b"\n") if line.strip()]
    stray = {r["cleanse_row"] for r in held(out)}
    numbered = [row for row, line in enumerate(source.read_bytes().split(b"\n")) if line.strip()]
    wanted = [json.loads(line).get("id") for row, line in zip(numbered, lines, strict=True) if row not in stray]
    assert [str(r["id"]) for r in result.load_clean()] == [str(id_) for id_ in wanted]
    page = (out / "report.html").read_text()
    assert f"{result.quarantined:,}" in page


def test_records_without_a_form_cannot_be_released(out: Path) -> None:
    stray = next(r for r in held(out) if r["cleanse_raw"] is not None)
    before = state(out)
    with pytest.raises(UsageError, match="could not be parsed"):
        release(out, Wanted(ids=[stray["cleanse_id"]]))
    done = release(out, Wanted(rules=stray["cleanse_reasons"]))
    assert (done.ids, done.formless > 0) == ([], True)
    assert state(out) == before


def test_a_rule_releases_what_it_holds_alone(out: Path) -> None:
    records = held(out)
    rules = sorted({rule for r in records if r["cleanse_raw"] is None for rule in r["cleanse_reasons"]})
    actions = {rule: tally["action"] for rule, tally in load_result(out).summary["rules"].items()}
    rule = next(rule for rule in rules if actions[rule] == "reject")
    wanted = [
        r["cleanse_id"]
        for r in records
        if r["cleanse_raw"] is None and {x for x in r["cleanse_reasons"] if actions[x] == "reject"} == {rule}
    ]
    assert release(out, Wanted(rules=[rule])).ids == wanted != []
    with pytest.raises(UsageError, match="no finding of this scan has the rule no.such-rule"):
        release(out, Wanted(rules=["no.such-rule"]))


def test_unknown_ids_change_nothing_and_known_ones_twice_are_no_mistake(out: Path) -> None:
    before = state(out)
    with pytest.raises(UsageError, match=r"no record nowhere:1"):
        release(out, Wanted(ids=[formed(out)[0], "nowhere:1"]))
    assert state(out) == before
    id_ = formed(out)[0]
    release(out, Wanted(ids=[id_]))
    after = state(out)
    assert release(out, Wanted(ids=[id_])).ids == []
    assert state(out) == after


def test_decisions_from_a_file(out: Path, tmp_path: Path) -> None:
    ids = formed(out)[:3]
    decisions = [
        {"id": ids[0], "decision": "release", "note": "a\u202efine poem"},
        {"id": ids[1], "decision": "agree", "note": "yes"},
        {"id": ids[2], "decision": "release"},
    ]
    path = tmp_path / "decisions.json"
    path.write_text(json.dumps({"format": "cleanse-decisions/1", "decisions": decisions}))
    done = cleanse.release(out, decisions=path, allow=tmp_path / "kept" / "allow.json", note="the others")
    assert done.ids == [ids[0], ids[2]]
    said = [f["message"] for f in done.result.load_findings().to_pylist() if f["rule"] == "review.released"]
    assert [("\\u202efine poem" in s, "spoke against it" in s) for s in said] == [(True, True), (False, True)]
    assert said[1].endswith("spoke against it: the others")
    assert AllowList.read([done.allow]).by_content
    path.write_text(json.dumps({"format": "cleanse-decisions/1", "decisions": decisions[1:2]}))
    assert cleanse.release(out, decisions=path).ids == []
    with pytest.raises(UsageError, match="there is no file"):
        cleanse.release(out, decisions=tmp_path / "none.json")


def test_files_that_are_no_allow_list(source: Path, tmp_path: Path) -> None:
    for content in ("{", '{"format": "other", "records": []}', '{"format": "cleanse-allow/1", "records": [1]}'):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(UsageError, match="allow list"):
            scan(config(source, tmp_path / "o", allow=(tmp_path / "a.json",)))
    with pytest.raises(UsageError, match="cannot be read"):
        scan(config(source, tmp_path / "o", allow=(tmp_path / "none.json",)))


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize("steps", range(0, 36, 5))
def test_a_killed_release_is_nothing_or_all(first: Path, out: Path, tmp_path: Path, monkeypatch, steps: int) -> None:
    chosen = formed(out)[::2]
    before = state(out)
    left = [steps]

    def counted(real: Any) -> Any:
        def call(*args: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return real(*args)

        return call

    with monkeypatch.context() as patched:
        for module, name in ((journals, "rename"), (atomic, "_fsync"), (journals, "write_json")):
            patched.setattr(module, name, counted(getattr(module, name)))
        try:
            release(out, Wanted(ids=chosen))
            killed = False
        except Killed:
            killed = True
    after = state(out)
    other = Path(shutil.copytree(first, tmp_path / "other"))
    release(other, Wanted(ids=chosen))
    whole = state(other)
    assert after in (before, whole)
    assert killed or after == whole
    if after == whole:
        assert AllowList.read([out / "allow.json"]).digest == AllowList.read([other / "allow.json"]).digest
    release(out, Wanted(ids=chosen))
    assert state(out) == whole
    assert (out / "report.html").exists()


def test_another_rule_holds_what_was_released(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    rows = ["All is well with this line of text.", "Left\u202eright and so on.", "Left\u202eright and so on."]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    result = scan(config(path, tmp_path / "o"))
    assert result.quarantined == 2
    done = release(tmp_path / "o", Wanted(ids=[f"{path}:1", f"{path}:2"]))
    assert [r["text"] for r in done.result.load_clean()] == rows
    allow = (done.allow,)
    assert scan(config(path, tmp_path / "o2", allow=allow)).quarantined == 0
    copies = scan(config(path, tmp_path / "o3", allow=allow, dedup="exact"))
    assert [r["cleanse_row"] for r in copies.load_quarantine()] == [2]
    # The filter honours the same list.
    assert cleanse.Filter(allow=allow)({"text": rows}) == [True, True, True]
    assert cleanse.Filter()({"text": rows}) == [True, False, False]
    told = cleanse.Filter(allow=allow).annotate({"text": rows})
    assert told["cleanse_verdict"] == ["keep", "release", "release"]


def test_the_list_that_a_scan_was_given_may_grow(source: Path, tmp_path: Path) -> None:
    allow = tmp_path / "allow.json"
    AllowList().write(allow)
    wanted = config(source, tmp_path / "o", allow=(allow,))
    scan(wanted)
    done = release(tmp_path / "o", Wanted(ids=formed(tmp_path / "o")[:2]), allow=allow)
    again = scan(wanted)
    assert again.already_done
    assert again.released == done.result.released == 2


def test_confidence(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    scan(config(source, out, read=ReadOptions()))
    with pytest.raises(UsageError, match="had no probe"):
        release(out, Wanted(all_below=0.99))
    # A probe's conclusions, put in place by hand: two records that only it convicts, one that a rule rejects as well.
    summary = json.loads((out / "summary.json").read_text())
    summary["rules"]["probe.spike"] = {"action": "reject", "findings": 3, "records": 3, "quarantined": 3}
    (out / "summary.json").write_text(json.dumps(summary))
    file = next(out.glob("quarantine/*.arrow"))
    with pa.ipc.open_stream(file.read_bytes()) as stream:
        table = stream.read_all()
    raw = table.column("cleanse_raw").is_null().to_pylist()
    places = [i for i, plain in enumerate(raw) if plain][:3]
    reasons = table.column("cleanse_reasons").to_pylist()
    for i, why in zip(places, (["probe.spike"], ["probe.spike"], ["probe.spike", *reasons[places[2]]]), strict=True):
        reasons[i] = why
    column = table.schema.get_field_index("cleanse_reasons")
    table = table.set_column(column, table.schema.field(column), pa.array(reasons, pa.list_(pa.string())))
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    rows = table.column("cleanse_row").take(pa.array(places))
    figures = dict.fromkeys(("loss", "max_token_loss", "context_gain", "min_window_gain", "nats_per_byte"), [9.0] * 3)
    texts = dict.fromkeys(("batch", "script", "worst", "problem", "dtype"), ["x"] * 3)
    finite = dict.fromkeys(("loss_finite", "grad_finite"), [True] * 3)
    probe = {"source": [str(source)] * 3, "row": rows, "role": ["suspect"] * 3, "n_tokens": [9] * 3, **figures, **texts}
    probe |= {"grad_norm": [1.0] * 3, "p_value": [0.004, 0.0001, 0.004], **finite}
    pq.write_table(pa.table(probe), out / "probe.parquet")
    done = release(out, Wanted(all_below=0.999))
    assert done.ids == [f"{source}:{rows[0]}"]


@pytest.mark.parametrize("wrong", [{}, {"all_below": 0.0}, {"all_below": 1.5}])
def test_wishes_that_mean_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Wanted(**wrong)


def test_no_scan_no_release(tmp_path: Path) -> None:
    with pytest.raises(CleanseError, match="no finished scan"):
        release(tmp_path, Wanted(ids=["a:1"]))


def test_the_command(out: Path) -> None:
    from click.testing import CliRunner

    from cleanse.cli import main

    ids = formed(out)
    (out.parent / "ids.txt").write_text("\n".join(ids[:2]) + "\n")
    run = CliRunner().invoke(main, ["release", str(out), "--ids", f"@{out.parent / 'ids.txt'}", "--ids", ids[2]])
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("3 records released; ")
    assert f"--allow {out / 'allow.json'}" in run.stdout
    answer = json.loads(CliRunner().invoke(main, ["release", str(out), "--ids", ids[3], "--json"]).stdout)
    assert answer["released"] == [ids[3]]
    assert answer["counts"]["released"] == 4
    wrong = CliRunner().invoke(main, ["release", str(out), "--json"])
    assert (wrong.exit_code, "nothing to release" in wrong.stdout) == (2, True)
