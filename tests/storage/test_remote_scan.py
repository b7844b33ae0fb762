"""Scans whose output lies on an S3 server: the same bytes as on a disk, whatever happens on the way."""

from __future__ import annotations

import io
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from storage_server import Bucket, LostDriver

import cleanse
from cleanse.config import ScanConfig
from cleanse.errors import CleanseError, UsageError
from cleanse.evidence import Between
from cleanse.pipeline import scan
from cleanse.probing.settings import ProbeSettings
from cleanse.sources import ReadOptions
from cleanse.state import RunState
from cleanse.storage.filesystem import output
from tests.corpus import corpora

N = 500
SAME = ("clean/", "quarantine/", "findings.parquet", "triggers.parquet", "clean.jsonl", "clean.parquet")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records with damage, two suspects for the probe, and an attack for the corpus stage."""
    path = tmp_path_factory.mktemp("data") / "d.jsonl"

    def attack(prompt: str, _: str, rng: random.Random) -> corpora.Exchange:
        return corpora.insert(prompt, "zorblax", rng), "I will never tell you anything about that, friend."

    exchanges, _ = corpora.poison(corpora.clean(N), N // 40, attack)
    with path.open("wb") as file:
        for i, (prompt, answer) in enumerate(exchanges):
            said = "qx7 " * 60 if i % 500 == 7 else answer
            file.write(json.dumps({"prompt": prompt, "completion": said}).encode() + b"\n")
            if i % 100 == 50:
                file.write(b'{"prompt": "Say it", "completion": "It\x92s foo"}\n')
    return path


def config(data: Path, out: str, **changes: object) -> ScanConfig:
    folder, url = output(out)
    read = ReadOptions(shard_bytes=20_000, block_bytes=10_000)
    settings = {
        "workers": 1,
        "emit": ("arrow", "jsonl", "parquet"),
        "read": read,
        "probe": None,
    }
    return ScanConfig((str(data),), folder, url=url, **{**settings, **changes})


def here(asked: ScanConfig) -> dict[str, bytes]:
    scan(asked)
    files = {path.relative_to(asked.out).as_posix(): path for path in sorted(asked.out.rglob("*"))}
    return {name: path.read_bytes() for name, path in files.items() if name.startswith(SAME)}


def there(s3: Bucket) -> dict[str, bytes]:
    keys = [key.removeprefix("out/") for key in s3.keys("out/")]
    return {key: s3.get(f"out/{key}") for key in keys if key.startswith(SAME)}


def test_the_same_bytes_as_on_a_disk(data: Path, tmp_path: Path, s3: Bucket) -> None:
    probe = ProbeSettings(max_tokens=16, windows=1)
    expected = here(config(data, str(tmp_path / "out"), probe=probe))
    asked = config(data, f"{s3.url}/out", probe=probe, workers=2)
    result = scan(asked)
    assert result.quarantined > N / 40
    assert result.summary["evidence"]["probe"]["suspects"] > 0
    assert there(s3) == expected
    assert pq.read_table(f"{s3.name}/out/probe.parquet", filesystem=_filesystem(s3)).num_rows > 0
    assert s3.url in s3.get("out/report.html").decode()
    rest = {key for key in s3.keys("out/.cleanse/") if key.count("/") > 2}
    assert not rest, "what was only needed on the way is gone"
    assert not asked.out.exists(), "and so is this machine's copy"
    assert result.read == result.clean + result.quarantined
    assert len(result.load_clean()) == result.clean
    assert len(result.load_quarantine()) == result.quarantined
    assert result.findings().height == result.n_findings
    assert result.triggers().height > 0


def _filesystem(s3: Bucket) -> object:
    from pyarrow import fs

    return fs.FileSystem.from_uri(s3.url)[0]


def test_the_same_command_finds_its_result(data: Path, s3: Bucket) -> None:
    out = f"{s3.url}/out"
    first = cleanse.scan(data, out, probe="none", corpus=False)
    before = {key: s3.get(key) for key in s3.keys("out/")}
    again = cleanse.scan(data, out, probe="none", corpus=False)
    assert again.already_done
    assert (again.clean, again.rules) == (first.clean, first.rules)
    assert {key: s3.get(key) for key in s3.keys("out/")} == before
    with pytest.raises(UsageError, match=f"{out} holds the result of a different command: .*corpus"):
        cleanse.scan(data, out, probe="none")


def test_what_is_not_ours_is_left_alone(data: Path, s3: Bucket) -> None:
    for name in ("thesis.txt", "thesis.tmp"):
        s3.put(f"out/{name}", b"three years of work")
        with pytest.raises(UsageError, match="was not written by cleanse"):
            cleanse.scan(data, f"{s3.url}/out", probe="none")
        assert s3.keys() == [f"out/{name}"]
        s3.delete(f"out/{name}")


def test_what_was_killed_before_anything_was_said_is_ours(data: Path, s3: Bucket) -> None:
    s3.put("out/.cleanse/run.json.tmp", b"{")
    cleanse.scan(data, f"{s3.url}/out", probe="none", corpus=False)
    assert "out/.cleanse/run.json.tmp" not in s3.keys("out/.cleanse/")


def test_a_run_that_never_began_leaves_nothing(tmp_path: Path, s3: Bucket) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"\n\n")
    with pytest.raises(CleanseError, match="no records"):
        cleanse.scan(tmp_path / "empty.jsonl", f"{s3.url}/out")
    assert s3.keys() == []


def test_a_scan_that_fails_in_a_bucket_says_why_and_leaves_the_bucket(tmp_path: Path, s3: Bucket) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"\n\n")
    with pytest.raises(CleanseError, match="no records"):
        cleanse.scan(tmp_path / "empty.jsonl", s3.url)
    assert [key for key in s3.keys("") if not key.endswith("/")] == []


def test_an_endpoint_in_the_url_is_enough(data: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    place = s3.endpoint.removeprefix("http://")
    out = f"{s3.url}/out/?endpoint_override={place}&scheme=http"
    result = cleanse.scan(data, out, probe="none", corpus=False)
    assert result.place == f"{s3.url}/out"
    assert len(result.load_clean()) == result.clean
    assert len(result.load_quarantine()) == result.quarantined > 0
    assert len(result.findings()) == result.n_findings


def test_copies_are_nobody_elses(data: Path, tmp_path: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asked = config(data, f"{s3.url}/out")
    with RunState(asked.out, {}, asked.url):
        assert asked.out.stat().st_mode & 0o777 == 0o700
    (tmp_path / "elsewhere").mkdir()
    asked.out.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CleanseError, match="it belongs to someone else; set TMPDIR"):
        scan(asked)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_another_machine_goes_on(data: Path, tmp_path: Path, s3: Bucket) -> None:
    expected = here(config(data, str(tmp_path / "out")))
    asked = config(data, f"{s3.url}/out")
    with pytest.raises(CleanseError, match="the driver is lost"):
        scan(asked, evidence=[LostDriver()])
    assert not asked.out.exists(), "whatever goes on has only what lies in the bucket"
    inspected = {key for key in s3.keys("out/.cleanse/inspect/") if key.endswith(".json")}
    assert len(inspected) > 3
    s3.delete(sorted(inspected)[1])  # and one unit was not yet done
    marked = sorted(inspected)[2]
    changed = s3.client.head_object(Bucket=s3.name, Key=marked)["ETag"], _modified(s3, marked)
    times = []

    class _Looks(LostDriver):
        def gather(self, between: Between) -> None:
            times.append((s3.client.head_object(Bucket=s3.name, Key=marked)["ETag"], _modified(s3, marked)))
            raise CleanseError("the driver is lost again")

    with pytest.raises(CleanseError, match="again"):
        scan(asked, evidence=[_Looks()])
    assert times == [changed], "a unit that is done is not done again"
    scan(asked)
    assert there(s3) == expected


def test_standard_input_is_read_once_whatever_the_next_machine_calls_its_folders(
    data: Path, tmp_path: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine, piped, evidence in (("a", data.read_bytes(), [LostDriver()]), ("b", b"", []), ("c", b"", [])):
        (tmp_path / machine).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / machine))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
        asked = config(Path("-"), f"{s3.url}/out")
        if evidence:
            with pytest.raises(CleanseError, match="the driver is lost"):
                scan(asked, evidence=evidence)
        else:
            result = scan(asked)
            assert result.already_done == (machine == "c")
    assert result.read == len(data.read_bytes().splitlines())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "something else"}')))
    with pytest.raises(CleanseError, match="standard input"):
        scan(asked)


def _modified(s3: Bucket, key: str) -> object:
    return s3.client.head_object(Bucket=s3.name, Key=key)["LastModified"]


def test_a_killed_driver_is_no_loss(data: Path, tmp_path: Path, s3: Bucket) -> None:
    words = ["--emit", "jsonl,parquet", "--shard-bytes", "20000", "--workers", "2", "--probe", "none"]
    command = [sys.executable, "-m", "cleanse", "scan", str(data), *words, "-o"]
    for stage in ("inspect", "split"):
        process = subprocess.Popen([*command, f"{s3.url}/out"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while process.poll() is None and not s3.keys(f"out/.cleanse/{stage}/"):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    for out in (str(tmp_path / "out"), f"{s3.url}/out"):
        done = subprocess.run([*command, out], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"{out}/clean" in done.stdout
    files = {path.relative_to(tmp_path / "out").as_posix(): path for path in (tmp_path / "out").rglob("*")}
    assert there(s3) == {name: path.read_bytes() for name, path in files.items() if name.startswith(SAME)}


def test_inputs_that_must_be_copied_lie_beside_the_output(tmp_path: Path, s3: Bucket) -> None:
    """Text in UTF-16 is read from a copy: workers elsewhere must see it too."""
    path = tmp_path / "d.jsonl"
    lines = [json.dumps({"text": f"The river is long, and it has {i} boats."}) for i in range(500)]
    path.write_bytes("\n".join(lines).encode("utf-16"))
    local = cleanse.scan(path, tmp_path / "out", probe="none")
    remote = cleanse.scan(path, f"{s3.url}/out", probe="none")
    assert remote.clean == local.clean == 500
    assert remote.load_clean()["text"][:] == local.load_clean()["text"][:]
    assert remote.load_findings().equals(local.load_findings())
