"""A whole scan of inputs behind URLs: the output is that of the same files on a disk."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from storage_server import Bucket

from cleanse.cli import main

WORDS = ["river", "mill", "boat", "bread", "market", "spring", "street", "child", "bridge", "summer", "garden"]
FILES = ("a.jsonl", "b.jsonl.gz", "c.csv", "d.parquet", "deep/e.arrow", "f.jsonl")


def scan(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["scan", *map(str, arguments), "--probe", "none", "--workers", "2", "--quiet"])


def corpus(folder: Path) -> None:
    """A corpus in six files with some damage, the same each time."""
    rng = random.Random(3)
    records = [{"text": " ".join(rng.choices(WORDS, k=rng.randint(8, 60))) + "."} for _ in range(3000)]
    records[100]["text"] = "a \u202egnirts\u202c b"
    records[2000]["text"] = "x" * 30_000
    parts = [records[i::6] for i in range(6)]
    lines = [b"".join(json.dumps(record).encode() + b"\n" for record in part) for part in parts]
    (folder / "deep").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(lines[0] + b'{"text": "It\x92s foo"}\n{"text": \n' + lines[0][:900])
    (folder / "b.jsonl.gz").write_bytes(pa.Codec("gzip").compress(lines[1], asbytes=True))
    (folder / "c.csv").write_text("text\n" + "".join(f'"{record["text"]}"\n' for record in parts[2]) + "a,b\n")
    pq.write_table(pa.Table.from_pylist(parts[3]), folder / "d.parquet", row_group_size=100)
    table = pa.Table.from_pylist(parts[4])
    with pa.OSFile(str(folder / "deep/e.arrow"), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    (folder / "f.jsonl").write_bytes(lines[5].decode().encode("utf-16"))


def content(folder: Path) -> dict[str, bytes]:
    """The files of a data set folder, but for the fingerprint, which is made from the inputs' names, too."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "state.json"}


def rows(table: Path, there: str, here: str) -> list[str]:
    """Rows without what names the source."""
    return [json.dumps(row, default=str).replace(there, here) for row in pq.read_table(table).to_pylist()]


def quarantined(out: Path, there: str, here: str) -> list[str]:
    from datasets import load_from_disk

    return [json.dumps(row, default=str).replace(there, here) for row in load_from_disk(str(out / "quarantine"))]


def test_a_scan_of_a_bucket_is_that_of_the_files(tmp_path: Path, s3: Bucket) -> None:
    here, there = tmp_path / "in", f"{s3.url}/in"
    corpus(here)
    for name in FILES:
        s3.put(f"in/{name}", (here / name).read_bytes())
    for out, place in (("local", str(here)), ("remote", there)):
        done = scan(place, "-o", tmp_path / out, "--shard-bytes", "20KB")
        assert done.exit_code == 0, done.output
    local, remote = tmp_path / "local", tmp_path / "remote"
    assert content(local / "clean") == content(remote / "clean")
    assert quarantined(remote, there, str(here)) == quarantined(local, "", "")
    assert rows(remote / "findings.parquet", there, str(here)) == rows(local / "findings.parquet", "", "")
    counts = [json.loads((out / "summary.json").read_text()) for out in (local, remote)]
    assert counts[0]["counts"] == counts[1]["counts"]
    assert counts[0]["counts"]["quarantined"] >= 4
    for mine, other in zip(counts[0]["sources"], counts[1]["sources"], strict=True):
        assert {**mine, "name": ""} == {**other, "name": ""}
        assert other["name"] == mine["name"].replace(str(here), there)

    again = scan(there, "-o", remote, "--shard-bytes", "20KB", "--json")
    assert json.loads(again.stdout)["already_done"] is True
    s3.put("in/a.jsonl", b'{"text": "another"}\n')
    changed = scan(there, "-o", remote, "--shard-bytes", "20KB")
    assert changed.exit_code == 1
    assert f"the input changed since this run began: {there}/a.jsonl" in changed.output.replace("\n", "")


def test_patterns_on_the_command_line(tmp_path: Path, s3: Bucket) -> None:
    for name in ("x/1.jsonl", "x/2.jsonl", "x/3.txt", "y/1.jsonl"):
        s3.put(name, b'{"text": "A plain sentence about rivers and boats."}\n')
    done = scan(f"{s3.url}/*/[12].jsonl", "-o", tmp_path / "o", "--json")
    assert [source["name"] for source in json.loads(done.stdout)["sources"]] == [
        f"{s3.url}/{name}" for name in ("x/1.jsonl", "x/2.jsonl", "y/1.jsonl")
    ]
    for text, expected in ((f"{s3.url}/none-*", "no file matches"), (f"{s3.url}/gone.csv", "no such file or folder")):
        failed = scan(text, "-o", tmp_path / "p")
        assert failed.exit_code == 2
        assert expected in failed.output
        assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("place", ["s3://AKIA:hush@{}/a.jsonl", "s3://AKIA:hush@{}/a.jsonl?region=us-east-1"])
def test_secrets_are_written_nowhere(tmp_path: Path, s3: Bucket, place: str) -> None:
    s3.put("a.jsonl", b'{"text": "A plain sentence about rivers and boats."}\n{"text": "It\x92s foo"}\n')
    url = place.format(s3.name)
    done = scan(url, "-o", tmp_path / "o", "--json")
    assert done.exit_code == 0, done.output
    assert scan(url, "-o", tmp_path / "o").exit_code == 0
    written = [path for path in (tmp_path / "o").rglob("*") if path.is_file()]
    assert len(written) > 8
    for path in written:
        assert not [secret for secret in (b"hush", b"AKIA", b"region=") if secret in path.read_bytes()], path
    assert "hush" not in done.output
