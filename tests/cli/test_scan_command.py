from __future__ import annotations

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cleanse.cli import main

GOOD = '{"text": "A plain sentence about rivers and boats."}\n'
BAD = b'{"text": "It\x92s foo"}\n'
CLEANSE = [sys.executable, "-m", "cleanse"]


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.jsonl"
    path.write_text(GOOD * 3)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(GOOD.encode() + BAD)
    return path


def test_a_scan_prints_the_result_on_stdout_and_the_rest_on_stderr(bad: Path, tmp_path: Path) -> None:
    result = run("scan", bad, "-o", tmp_path / "o", "--probe", "none", "--workers", 1)
    assert result.exit_code == 0, result.output
    assert "2 records read, 1 clean (0 of them repaired), 1 quarantined" in result.stdout
    assert "reader.invalid-utf8" in result.stdout
    assert str(tmp_path / "o" / "quarantine") in result.stdout.replace("\n", "")
    assert result.stderr.strip().endswith("bad.jsonl: text: text")


def test_json_is_one_object_and_quiet_is_silent(bad: Path, tmp_path: Path) -> None:
    result = run("scan", bad, "-o", tmp_path / "o", "--probe", "none", "--workers", 1, "--json", "--quiet")
    answer = json.loads(result.stdout)
    assert (answer["counts"]["read"], answer["out"], result.stderr) == (2, str(tmp_path / "o"), "")
    again = run("scan", bad, "-o", tmp_path / "o", "--probe", "none", "--workers", 1, "--json")
    assert json.loads(again.stdout)["already_done"] is True
    assert "already run to its end" in again.stderr
    assert run("scan", bad, "-o", tmp_path / "o", "--probe", "none", "--quiet").output == ""


def test_unused_probe_options_are_refused(good: Path, tmp_path: Path) -> None:
    result = run("scan", good, "-o", tmp_path / "o", "--probe", "none", "--budget", 0.01)
    assert result.exit_code == 2
    assert "budget" in result.stderr


@pytest.mark.parametrize(
    ("fail_on", "code"), [("never", 0), ("quarantine", 10), ("suspect", 10), ("repair", 10), ("note", 10)]
)
def test_fail_on_a_record_that_was_held(bad: Path, tmp_path: Path, fail_on: str, code: int) -> None:
    result = run("scan", bad, "-o", tmp_path / "o", "--probe", "none", "--workers", 1, "--fail-on", fail_on)
    assert result.exit_code == code


def test_fail_on_tells_repairs_from_worse(good: Path, tmp_path: Path) -> None:
    good.write_text(GOOD + '{"text": "plain\u200b tex\u200bt here"}\n' + GOOD)
    for fail_on, code in (("quarantine", 0), ("suspect", 0), ("repair", 10), ("note", 10)):
        result = run("scan", good, "-o", tmp_path / "o", "--probe", "none", "--workers", 1, "--fail-on", fail_on)
        assert result.exit_code == code, fail_on


def test_fail_on_nothing_found(good: Path, tmp_path: Path) -> None:
    alone = ("--probe", "none", "--no-corpus", "--workers", 1)
    result = run("scan", good, "-o", tmp_path / "o", *alone, "--fail-on", "note")
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["missing.jsonl", "-o", "o"], 2, "missing.jsonl"),
        (["good.jsonl"], 2, "Missing option '-o'"),
        (["-o", "o"], 2, "Missing argument 'SRC...'"),
        (["good.jsonl", "-o", "o", "--format", "nonsense"], 2, "no format is called 'nonsense'"),
        (["good.jsonl", "-o", "o", "--format", "alpaca"], 2, "good.jsonl: the columns do not fit format alpaca"),
        (["good.jsonl", "-o", "o", "--text-column", "body"], 2, "no column 'body'"),
        (["good.jsonl", "-o", "o", "--rules", "absent.toml"], 2, "absent.toml"),
        (["good.jsonl", "-o", "o", "--rules", "broken.toml"], 2, "broken.toml"),
        (["good.jsonl", "-o", "taken"], 2, "taken is not empty and was not written by cleanse"),
        (["good.jsonl", "-o", "good.jsonl"], 2, "is a file"),
        (["good.jsonl", "-o", "o", "--emit", "csv"], 2, "emit is 'csv': expected one of arrow, jsonl, parquet"),
        (["good.jsonl", "-o", "o", "--max-record-bytes", "many"], 2, "'many' is not a size"),
        (["good.jsonl", "-o", "o", "--max-length", "64"], 2, "add --tokenizer"),
        (["good.jsonl", "-o", "o", "--tokenizer", "nowhere.json"], 2, "no tokenizer at nowhere.json"),
        (["good.jsonl", "-o", "o", "--probe", "some.toml"], 2, "there is no recipe some.toml"),
        (["good.jsonl", "-o", "o", "--engine", "slurm"], 2, "'slurm' is not one of 'local', 'ray'"),
        (["empty.jsonl", "-o", "o"], 3, "no records in empty.jsonl"),
        (["blank.jsonl", "-o", "o"], 3, "empty or blank"),
        (["cut.parquet", "-o", "o"], 3, "cannot be read"),
        (["good.jsonl", "-o", "o", "--probe", "auto", "--model", "/nowhere"], 2, "no model at /nowhere"),
        (["good.jsonl", "-o", "/proc/nowhere"], 1, "cannot write to the output folder /proc/nowhere"),
    ],
)
def test_mistakes_are_explained(good: Path, monkeypatch: pytest.MonkeyPatch, arguments, code: int, words: str) -> None:
    folder = good.parent
    monkeypatch.chdir(folder)
    (folder / "empty.jsonl").touch()
    (folder / "blank.jsonl").write_text("\n\n")
    (folder / "cut.parquet").write_bytes(b"PAR1" + bytes(100))
    (folder / "broken.toml").write_text("[[rule]]\nid = 3\n")
    (folder / "taken").mkdir()
    (folder / "taken" / "notes.txt").touch()
    result = run("scan", *arguments, *([] if "--probe" in arguments else ["--probe", "none"]))
    assert (result.exit_code, words in result.stderr.replace("\n", " ")) == (code, True), result.output
    assert not (folder / "o").exists()  # a mistake leaves nothing that stands in the way of the next try


def test_errors_are_json_too_where_json_was_asked_for(tmp_path: Path) -> None:
    result = run("scan", tmp_path / "missing.jsonl", "-o", tmp_path / "o", "--json", "--probe", "none")
    answer = json.loads(result.stdout)
    assert answer["exit_code"] == result.exit_code == 2
    assert "missing.jsonl" in answer["error"]


def test_another_command_does_not_overwrite(good: Path, tmp_path: Path) -> None:
    run("scan", good, "-o", tmp_path / "o", "--probe", "none", "--workers", 1)
    result = run("scan", good, "-o", tmp_path / "o", "--probe", "none", "--suspects", "quarantine")
    assert result.exit_code == 2
    assert "the result of a different command: suspects was 'keep', now 'quarantine'" in result.stderr


def test_what_data_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    hostile = tmp_path / "a\x1b]0;owned\x07\u202ename[bold].jsonl"
    hostile.write_bytes(GOOD.encode() + BAD)
    result = run("scan", hostile, tmp_path, "-o", tmp_path / "o", "--probe", "none", "--workers", 1)
    assert result.exit_code == 0
    assert "[bold]" in result.output
    report = run("report", tmp_path / "o")
    for text in (result.output, report.output):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_report_repeats_the_result(bad: Path, tmp_path: Path) -> None:
    scanned = run("scan", bad, "-o", tmp_path / "o", "--probe", "none", "--workers", 1)
    assert run("report", tmp_path / "o").stdout == scanned.stdout
    assert json.loads(run("report", tmp_path / "o", "--json").stdout)["counts"]["quarantined"] == 1
    missing = run("report", tmp_path / "absent")
    assert (missing.exit_code, "holds no finished scan" in missing.stderr) == (1, True)


def test_stdin_is_read(tmp_path: Path) -> None:
    command = [*CLEANSE, "scan", "-", "-o", str(tmp_path / "o"), "--probe", "none", "--json", "--workers", "1"]
    done = subprocess.run(command, input=GOOD.encode() + BAD, capture_output=True, check=True)
    assert json.loads(done.stdout)["counts"]["quarantined"] == 1
    same = subprocess.run(command, input=GOOD.encode() + BAD, capture_output=True, check=True)
    assert json.loads(same.stdout)["already_done"]
    other = subprocess.run(command, input=GOOD.encode(), capture_output=True, check=False)  # never the old result
    assert (other.returncode, b"standard input" in other.stderr) == (1, True)
    nothing = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert json.loads(nothing.stdout)["already_done"]


def test_a_name_that_is_no_utf8_is_refused_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = os.fsencode(folder) + b"/a\xff.jsonl"
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - a name in bytes
        file.write(GOOD)
    for source in (path, os.fsencode(folder)):
        command = [*CLEANSE, "scan", source, "-o", str(tmp_path / "o"), "--probe", "none"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, "UTF-8; rename" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
    assert not (tmp_path / "o").exists()


def _no_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))


def test_a_full_disk_says_so_and_the_same_command_continues(tmp_path: Path) -> None:
    # A limit on file sizes meets the same code as a full disk: writing fails in the middle of a part.
    path = tmp_path / "d.jsonl"
    path.write_text(
        "".join(f'{{"text": "Sentence {i} about rivers, boats and a little more."}}\n' for i in range(3000))
    )
    command = [*CLEANSE, "scan", str(path), "-o", str(tmp_path / "o"), "--probe", "none", "--workers", "1", "--quiet"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    full = subprocess.run(command, capture_output=True, text=True, preexec_fn=_no_room, env=environment, check=False)
    assert full.returncode == 1
    assert "no room left to write" in full.stderr
    assert "same command" in full.stderr
    assert "Traceback" not in full.stderr
    subprocess.run(command, check=True)
    assert json.loads((tmp_path / "o" / "summary.json").read_text())["counts"]["clean"] == 3000


def _large(path: Path) -> None:
    words = ["river", "boat", "mill", "bread", "spring", "market", "child", "street"]
    with path.open("w") as file:
        for i in range(60_000):
            file.write(json.dumps({"text": " ".join(words[(i * 7 + j * j) % 8] for j in range(12)) + f" {i}."}) + "\n")


def test_ctrl_c_stops_cleanly_and_the_same_command_continues(tmp_path: Path) -> None:
    _large(tmp_path / "d.jsonl")
    out = tmp_path / "o"
    command = [*CLEANSE, "scan", str(tmp_path / "d.jsonl"), "-o", str(out), "--probe", "none", "--workers", "2"]
    command += ["--shard-bytes", "400KB"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    deadline = time.monotonic() + 120
    while not any(out.glob(".cleanse/inspect/*.json")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1, errors
    assert "stopped. The same command continues where it stopped" in errors
    assert "Traceback" not in errors
    assert not list(out.rglob("*.tmp"))
    resumed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "going on where it stopped" in resumed.stderr
    assert json.loads((out / "summary.json").read_text())["counts"]["read"] == 60_000


def test_a_terminal_sees_a_progress_line(tmp_path: Path) -> None:
    _large(tmp_path / "d.jsonl")
    leader, follower = pty.openpty()
    command = [*CLEANSE, "scan", str(tmp_path / "d.jsonl"), "-o", str(tmp_path / "o"), "--probe", "none"]
    command += ["--workers", "1", "--shard-bytes", "400KB"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env={**os.environ, "COLUMNS": "150"})
    os.close(follower)
    seen = b""
    while True:
        try:
            chunk = os.read(leader, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(leader)
    output, _ = process.communicate()
    assert process.returncode == 0
    for words in (b"inspect", b"records/s", b"MB/s", b"quarantined", b" left"):
        assert words in seen
    assert b"\x1b" not in output
