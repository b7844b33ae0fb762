"""Every format behind a URL: the same records, events, findings and cuts as on a disk."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from storage_server import Bucket

from cleanse import inputs
from cleanse.records import EventKind
from cleanse.sources import ReadOptions, open_shard, plan
from cleanse.sources.places import RemoteFile, open_random, status

from .reading import Read, read
from .test_arrow import ODD, TABLE, arrow_file, arrow_stream, feather_lz4, parquet
from .test_json_lines import BAD

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
ODD_LINES = [bad if isinstance(bad, bytes) else bad.encode() for bad, _ in BAD]
LINES = [json.dumps({"text": f"record {i}", "n": list(range(i % 5))}).encode() for i in range(300)]
DIRTY = b"\xef\xbb\xbf" + b"\n".join([*LINES, b"", *ODD_LINES, b"[1]", *LINES[:7], b'{"text": "cut']) + b"\r\n"
CSV = b"a,b\r\n" + b'1,"x\ny"\r\n2,NaN\n,\n3\n' * 60 + b'4,"open'
TEXTS = {
    "dirty.jsonl": DIRTY,
    "array.json": b"[" + b",\n".join(LINES) + b', {"text": ',
    "values.json": b"\n".join(json.dumps(json.loads(line), indent=1).encode() for line in LINES),
    "table.csv": CSV,
    "table.tsv": CSV.replace(b",", b"\t"),
    "semicolon.csv": CSV.replace(b",", b";"),
    "plain.txt": b"one\n\n\xff two\r\n" * 200,
    "wide.jsonl": "\n".join(json.dumps({"a": f"\u4e2d {i}"}, ensure_ascii=False) for i in range(99)).encode("utf-16"),
    "empty.jsonl": b"",
    "no-extension": b"\n".join(LINES),
}
OPTIONS = [{}, {"shard_bytes": 997, "block_bytes": 500, "max_record_bytes": 5000}]


def both(tmp_path: Path, s3: Bucket, name: str, data: bytes, **options: Any) -> tuple[Read, Read]:
    """The same file read from a disk and from the bucket."""
    (tmp_path / "here").mkdir(exist_ok=True)
    (tmp_path / "here" / name).write_bytes(data)
    url = s3.put(f"some/{name}", data)
    here = read(tmp_path / "here" / name, spool=tmp_path / "spool-here", **options)
    return here, read(url, spool=tmp_path / "spool-there", **options)


def same(here: Read, there: Read) -> None:
    assert repr(here.second.records) == repr(there.second.records)  # repr: NaN equals itself there
    assert here.second.strays == there.second.strays
    assert here.second.events == there.second.events
    assert here.second.raw == there.second.raw
    assert here.first.facts == there.first.facts
    assert here.types == there.types
    assert here.schema.equals(there.schema, check_metadata=True)
    cuts = [[(s.source.index, s.start, s.stop, s.offset) for s in made.plan.shards] for made in (here, there)]
    assert cuts[0] == cuts[1]
    for mine, other in zip(here.plan.sources, there.plan.sources, strict=True):
        assert (mine.kind, mine.compression, mine.n_bytes) == (other.kind, other.compression, other.n_bytes)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("extension", PACKERS)
@pytest.mark.parametrize("name", TEXTS)
def test_text_formats(tmp_path: Path, s3: Bucket, name: str, extension: str, options: dict[str, int]) -> None:
    here, there = both(tmp_path, s3, name + extension, PACKERS[extension](TEXTS[name]), **options)
    same(here, there)
    assert there.plan.sources[0].name == f"{s3.url}/some/{name}{extension}"
    if name == "dirty.jsonl" and not extension and options:
        assert len(there.plan.shards) > 10
        assert len(there.second.strays) > len(ODD_LINES)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("pack", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("writer", "name"),
    [(parquet, "t.parquet"), (arrow_file, "t.arrow"), (arrow_stream, "s.arrow"), (feather_lz4, "t.feather")],
)
def test_tables(  # noqa: PLR0917
    tmp_path: Path, s3: Bucket, writer: Any, name: str, pack: str, options: dict[str, int]
) -> None:
    for table in (TABLE, ODD):
        data = PACKERS[pack](writer(tmp_path / name, table).read_bytes())
        here, there = both(tmp_path, s3, name + pack, data, **options)
        same(here, there)
        assert len(there.rows()) == table.num_rows
        assert len(there.plan.shards) > (2 if options else 0)


@pytest.mark.parametrize("keep", [0.3, 0.7, 0.97])
@pytest.mark.parametrize(
    ("writer", "name"),
    [(parquet, "t.parquet"), (arrow_file, "t.arrow"), (arrow_stream, "s.arrow"), (feather_lz4, "t.feather")],
)
def test_damaged_tables(tmp_path: Path, s3: Bucket, writer: Any, name: str, keep: float) -> None:
    data = writer(tmp_path / name, TABLE).read_bytes()
    same(*both(tmp_path, s3, name, data[: int(keep * len(data))], shard_bytes=997))
    middle = int(keep * len(data) / 2)
    same(*both(tmp_path, s3, f"b-{name}", data[:middle] + bytes(40) + data[middle + 40 :], shard_bytes=997))


@pytest.mark.parametrize("extension", [".gz", ".zst", ".bz2", ".xz"])
def test_damage_inside_a_compressed_file_is_still_damage(tmp_path: Path, s3: Bucket, extension: str) -> None:
    data = PACKERS[extension](DIRTY * 5)
    here, there = both(tmp_path, s3, f"a.jsonl{extension}", data[:-20])
    same(here, there)
    assert len(there.found(EventKind.READ_ERROR)) == 1


def test_a_stream_is_entered_where_a_part_begins(tmp_path: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"text": ["x" * 1000] * 8000})  # 8 MB
    url = s3.put("s.arrow", arrow_stream(tmp_path / "s.arrow", table).read_bytes())
    made = plan([url], ReadOptions(shard_bytes=1 << 20), tmp_path / "spool")
    assert len(made.shards) == 9
    assert all(shard.offset for shard in made.shards[1:])
    asked = count(monkeypatch)
    last = made.shards[-1]
    assert sum(len(block.rows) for block in open_shard(last, made.options)) == 8000 - 70 * last.start
    assert sum(asked) < 2 << 20


def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each request from now on."""
    asked: list[int] = []
    read_at = RemoteFile._read_at

    def counted(self: RemoteFile, at: int, size: int) -> bytes:
        asked.append(size)
        return read_at(self, at, size)

    monkeypatch.setattr(RemoteFile, "_read_at", counted)
    return asked


def test_a_part_of_a_large_file_costs_about_its_bytes(
    tmp_path: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps({"text": "x" * 985}).encode() + b"\n"
    url = s3.put("large.jsonl", line * 24_000)
    asked = count(monkeypatch)
    made = plan([url], ReadOptions(shard_bytes=8 << 20, block_bytes=2 << 20), tmp_path / "spool")
    assert len(made.shards) == 3
    assert sum(asked) <= 256 << 10
    n_records = 0
    for shard in made.shards:
        asked.clear()
        n_records += sum(len(block.rows) for block in open_shard(shard, made.options))
        assert sum(asked) <= (shard.stop - shard.start) + (600 << 10)
        assert len(asked) <= 8
    assert n_records == 24_000


def test_compressed_files_are_read_in_large_pieces(tmp_path: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = b"\n".join(hashlib.sha512(b"%d" % i).hexdigest().encode() for i in range(250_000))
    packed = gzip.compress(noise, 1)
    url = s3.put("noise.txt.gz", packed)
    asked = count(monkeypatch)
    got = read(url, spool=tmp_path / "spool")
    assert len(got.rows()) == 250_000
    assert len(packed) > 15 << 20
    assert sum(asked) < 2.2 * len(packed)  # two passes
    assert len(asked) < 25


def test_columns_are_read_in_turn(tmp_path: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({f"c{i}": [hashlib.sha512(b"%d %d" % (i, k)).hexdigest() for k in range(3000)] for i in range(8)})
    data = parquet_of(tmp_path / "wide.parquet", table)
    url = s3.put("wide.parquet", data)
    asked = count(monkeypatch)
    got = read(url, spool=tmp_path / "spool", block_bytes=100_000)
    assert len(got.rows()) == 3000
    assert len(asked) < 40
    assert sum(asked) < 4 * len(data) + (1 << 20)


def parquet_of(path: Path, table: pa.Table) -> bytes:
    pq.write_table(table, path)
    return path.read_bytes()


def test_going_about_in_a_file(s3: Bucket) -> None:
    data = hashlib.shake_256(b"x").digest(3 << 20)
    url = s3.put("a.bin", data)
    file = RemoteFile(url)
    assert file.read(10) == data[:10]
    assert file.seek(-5, 2) == len(data) - 5
    assert file.read() == data[-5:]
    assert file.read(1) == b""
    file.seek(1 << 20)
    assert file.read(2 << 20) == data[1 << 20 : 3 << 20]
    assert file.seek(7) == file.tell() == 7
    assert file.seek(3, 1) == 10
    assert file.read(1 << 20) == data[10 : 10 + (1 << 20)]
    file.seek(len(data) + 10)
    assert file.read(5) == b""
    file.close()
    with open_random(url, pa.OSFile) as opened:
        assert opened.size() == len(data)
        assert opened.read_at(100, 1000) == data[1000:1100]
    assert status(url).n_bytes == len(data)


def test_what_pins_an_input(tmp_path: Path, s3: Bucket) -> None:
    url = s3.put("a.jsonl", b'{"a": 1}\n')
    (source,) = plan([url], ReadOptions(), tmp_path / "spool").sources
    pinned = inputs.identity(source, tmp_path / "spool")
    assert (pinned["name"], pinned["path"], pinned["bytes"]) == (url, url, 9)
    assert pinned["changed_ns"] == status(url).changed_ns is not None
    (asked,) = plan([f"{url}?region=us-east-1"], ReadOptions(), tmp_path / "spool").sources
    assert asked.name == url
    assert inputs.identity(asked, tmp_path / "spool")["path"] is None  # parameters may hold a secret
