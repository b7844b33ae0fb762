"""The page as a file: whole, closed to the outside, bounded, repeatable, in two languages."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import hostile_records as hostile
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from report_scans import scanned

from cleanse import findings as tables
from cleanse.cli import main
from cleanse.records import Finding
from cleanse.report import page, write_report
from cleanse.report.page import MOST_BYTES, build
from cleanse.report.scan_facts import ScanFacts
from cleanse.report.wording import in_both, of_rule, rules_in_chinese, words


class Reader(HTMLParser):
    """Elements with their attributes, and the text inside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.text: list[str] = []
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        self.raw.get(self._inside, self.text).append(data)

    @property
    def data(self) -> dict:
        return json.loads(self.raw["script"][0])


@pytest.fixture(scope="module")
def read(hostile_out: Path) -> Reader:
    return Reader((hostile_out / page.FILE).read_text("utf-8"))


def test_nothing_is_loaded_from_anywhere(read: Reader) -> None:
    for tag, attributes in read.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert not {"src", "srcset", "style", "action", "formaction"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")
    assert "url(" not in read.raw["style"][0]
    assert "@import" not in read.raw["style"][0]


def test_the_policy_allows_the_pages_own_script_and_style_alone(read: Reader) -> None:
    (policy,) = [a["content"] for tag, a in read.elements if a.get("http-equiv") == "Content-Security-Policy"]
    for name, text in (("script-src", read.raw["script"][1]), ("style-src", read.raw["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy


def test_hostile_records_stay_text(read: Reader, hostile_out: Path) -> None:
    html = (hostile_out / page.FILE).read_text("utf-8")
    assert len(read.raw["script"]) == 2
    assert [tag for tag, _ in read.elements].count("script") == 2
    assert html.count("</script") == 2
    assert not {"\x1b", "\x9b", "\u202e", "\u2066", "\x00", "\u2028"} & set(html)
    shown = {record["id"]: record for record in read.data["records"]}
    assert len(shown) >= len(hostile.OUTPUTS) // 2
    said = json.dumps(list(shown.values()))
    for words_ in ("RIGHT-TO-LEFT OVERRIDE", "ESCAPE", "ZERO WIDTH SPACE", "BYTE FF", "NUL"):
        assert words_ in said


def test_the_million_letters_are_not_in_the_page(hostile_out: Path) -> None:
    assert (hostile_out / page.FILE).stat().st_size < 500_000
    assert "A" * 5000 not in (hostile_out / page.FILE).read_text("utf-8")


def test_the_terminal_stays_inert_too(hostile_out: Path) -> None:
    printed = CliRunner().invoke(main, ["report", str(hostile_out), "--all"])
    assert printed.exit_code == 0
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(printed.output)


def test_the_same_scan_gives_the_same_page_and_nothing_else_changes(hostile_out: Path, tmp_path: Path) -> None:
    before = {p: p.read_bytes() for p in hostile_out.rglob("*") if p.is_file()}
    assert build(ScanFacts(hostile_out)) == build(ScanFacts(hostile_out))
    write_report(hostile_out, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == before[hostile_out / page.FILE]
    assert {p: p.read_bytes() for p in hostile_out.rglob("*") if p.is_file()} == before


def test_report_writes_the_page_where_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(hostile.ordinary(i)) + "\n" for i in range(30)))
    out = scanned(tmp_path / "d.jsonl", tmp_path / "out")
    whole = (out / page.FILE).read_bytes()
    (out / page.FILE).unlink()
    assert CliRunner().invoke(main, ["report", str(out)]).exit_code == 0
    assert (out / page.FILE).read_bytes() == whole
    CliRunner().invoke(main, ["report", str(out), "--html", str(tmp_path / "x.html")])
    assert (tmp_path / "x.html").read_bytes() == whole
    (out / page.FILE).unlink()
    scanned(tmp_path / "d.jsonl", out)  # a finished scan, given again, makes up for a page that is gone
    assert (out / page.FILE).read_bytes() == whole
    text = whole.decode()
    assert "none had to be held back" in text
    assert "No rule found anything" in text


def test_the_numbers_are_those_of_the_summary(read: Reader, hostile_out: Path) -> None:
    counts = json.loads((hostile_out / "summary.json").read_text())["counts"]
    text = "".join(read.text)
    assert f"{counts['read']:,} records were read, {counts['quarantined']:,} are held back." in text
    held = [record for record in read.data["records"] if record["state"] == "quarantined"]
    assert len(held) == counts["quarantined"]


def test_many_long_findings_stay_within_the_bound(hostile_out: Path, tmp_path: Path) -> None:
    """Thirty rules with 2,000 findings each, and a quarantine of long records."""
    import shutil

    out = tmp_path / "out"
    shutil.copytree(hostile_out, out)
    summary = json.loads((out / "summary.json").read_text())
    n, name = 2000, summary["sources"][0]["name"]
    text = ["\u200bx<&>" * 2000] * n
    table = pa.table(
        {
            "output": text,
            "cleanse_id": [f"{name}:{i}" for i in range(n)],
            "cleanse_source": [name] * n,
            "cleanse_row": np.arange(n),
            "cleanse_reasons": [[f"r.{k}" for k in range(30)]] * n,
            "cleanse_raw": pa.nulls(n, pa.large_binary()),
        }
    )
    shutil.rmtree(out / "quarantine")
    (out / "quarantine").mkdir()
    with pa.ipc.new_stream(str(out / "quarantine" / "data-0.arrow"), table.schema) as writer:
        writer.write_table(table)
    (out / "quarantine" / "state.json").write_text('{"_data_files": [{"filename": "data-0.arrow"}]}')
    made = [
        Finding(name, i, f"r.{k}", "reject", "output", 7, 3000, 9.0 + i, 1.0, "<b>" * 200, "&<>" * 100)
        for k in range(30)
        for i in range(n)
    ]
    pq.write_table(tables.table(made), out / "findings.parquet")
    tally = {"action": "reject", "findings": n, "records": n, "quarantined": n}
    summary["rules"] = {f"r.{k}": tally for k in range(30)}
    summary["counts"] |= {"read": 2 * n, "clean": n, "quarantined": n}
    (out / "summary.json").write_text(json.dumps(summary))
    html = build(ScanFacts(out))
    assert 1_000_000 < len(html) < MOST_BYTES
    assert f"cleanse review {out}" in Reader(html.decode()).text[0] or "cleanse review" in html.decode()


def test_both_languages_say_everything() -> None:
    for key, word in words().items():
        assert word.en, key
        assert word.zh, key
        assert set(re.findall(r"\{\w+\}", word.en)) == set(re.findall(r"\{\w+\}", word.zh)), key
        if not key.startswith("js.p_"):
            assert word.en != word.zh, key
    assert str(in_both("flow.rest", n=12345)).count("12,345") == 2
    assert "&lt;b&gt;" in in_both("step.train", code="<b>")


def test_chinese_words_for_rules_are_those_of_rules_that_exist() -> None:
    from cleanse.rulepacks import available, load_packs

    known = {rule.id for pack in available() for rule in load_packs((pack.name,)).rules}
    assert set(rules_in_chinese()) <= known
    assert len(rules_in_chinese()) >= 90
    assert "&lt;b&gt;" in of_rule("my.rule", "<b>")
    assert "lang" not in of_rule("my.rule", "plain")


def test_the_script_finds_every_text_it_asks_for() -> None:
    script = page._asset("page.js")
    asked = set(re.findall(r'say\("([\w.]+)"', script)) | {"js." + k for k in ("language", "theme", "decisions")}
    known = page.script_words()
    assert asked - {"js.", "state."} <= set(known)


def test_a_folder_without_a_scan_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["report", str(tmp_path), "--open"])
    assert done.exit_code == 1
    assert "holds no finished scan" in done.output
