"""Compressed and re-encoded files: the same records, bounded memory, damage named."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import zstandard

from cleanse.records import EventKind
from cleanse.sources import SourceError
from cleanse.sources.spool import spool_stdin
from cleanse.sources.streams import UnpackedStream, open_stream

from .reading import read, write
from .test_arrow import TABLE

PACKERS = [
    (gzip.compress, ".gz"),
    (zstandard.compress, ".zst"),
    (bz2.compress, ".bz2"),
    (lzma.compress, ".xz"),
]
LINES = [json.dumps({"a": f"record {i}", "b": list(range(i % 5))}) for i in range(2000)]
TEXT = "\n".join(LINES).encode() + b"\n"


@pytest.mark.parametrize(("pack", "extension"), PACKERS)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a", "a.txt"])
def test_records_are_those_of_the_plain_file(tmp_path: Path, pack: Any, extension: str, name: str) -> None:
    (tmp_path / f"plain{Path(name).suffix or '.jsonl'}").write_bytes(TEXT)
    (tmp_path / (name + extension)).write_bytes(pack(TEXT))
    plain = read(tmp_path / f"plain{Path(name).suffix or '.jsonl'}")
    for block_bytes in (1000, 1 << 20):
        got = read(tmp_path / (name + extension), block_bytes=block_bytes)
        assert got.rows() == plain.rows()
        assert got.second.raw == plain.second.raw
        assert len(got.plan.shards) == 1
        assert not got.second.events


@pytest.mark.parametrize(("pack", "extension"), PACKERS)
def test_several_streams_in_one_file(tmp_path: Path, pack: Any, extension: str) -> None:
    (tmp_path / f"a.jsonl{extension}").write_bytes(pack(TEXT[:5000]) + pack(TEXT[5000:]) + pack(b""))
    assert len(read(tmp_path / f"a.jsonl{extension}").rows()) == len(LINES)


@pytest.mark.parametrize(("pack", "extension"), PACKERS)
def test_a_cut_stream_keeps_what_came_before(tmp_path: Path, pack: Any, extension: str) -> None:
    packed = pack(TEXT)
    (tmp_path / f"a.jsonl{extension}").write_bytes(packed[: len(packed) - 20])
    got = read(tmp_path / f"a.jsonl{extension}")
    (event,) = got.found(EventKind.READ_ERROR)
    assert "lost to any reader" in event.detail
    assert event.row == len(got.rows()) + len(got.second.strays)
    assert got.rows() == [json.loads(line) for line in LINES[: len(got.rows())]]
    assert len(got.rows()) > 1000 or extension in (".bz2", ".zst", ".xz")  # those unpack in large blocks
    assert set(got.kinds().values()) <= {EventKind.TRUNCATED}


@pytest.mark.parametrize(("pack", "extension"), PACKERS)
def test_a_damaged_stream_ends_there(tmp_path: Path, pack: Any, extension: str) -> None:
    packed = bytearray(pack(TEXT))
    middle = len(packed) // 2
    packed[middle : middle + 16] = bytes(16)
    (tmp_path / f"a.jsonl{extension}").write_bytes(packed)
    got = read(tmp_path / f"a.jsonl{extension}")
    assert len(got.found(EventKind.READ_ERROR)) == 1
    assert all(row == json.loads(LINES[i]) for i, row in enumerate(got.rows()[:500]))


@pytest.mark.parametrize(("pack", "extension"), PACKERS)
def test_a_bomb_has_an_event(tmp_path: Path, pack: Any, extension: str) -> None:
    (tmp_path / f"a.jsonl{extension}").write_bytes(pack(b'{"a": "' + b"0" * (17 << 20) + b'"}\n' + b'{"a": "1"}'))
    got = read(tmp_path / f"a.jsonl{extension}", max_record_bytes=1 << 20)
    (event,) = got.found(EventKind.EXPANSION)
    assert event.row == -1
    assert event.value is not None
    assert event.value > 100
    assert got.kinds() == {0: EventKind.TOO_LARGE}
    assert got.rows() == [{"a": "1"}]


def test_trailing_zeros_are_padding(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(TEXT) + bytes(512))
    got = read(tmp_path / "a.jsonl.gz")
    assert len(got.rows()) == len(LINES)
    assert not got.second.events


@pytest.mark.parametrize(("pack", "extension"), PACKERS)
def test_pieces_are_as_asked_for(tmp_path: Path, pack: Any, extension: str) -> None:
    (tmp_path / "a").write_bytes(pack(TEXT))
    stream = UnpackedStream(str(tmp_path / "a"), extension[1:])
    pieces = [stream.peek(10)]
    assert pieces[0] == TEXT[:10]
    pieces = []
    while piece := stream.read(997):
        pieces.append(piece)
    stream.close()
    assert b"".join(pieces) == TEXT
    assert {len(piece) for piece in pieces[:-1]} == {997}
    assert stream.n_out == len(TEXT)


def test_compressed_parquet(tmp_path: Path) -> None:
    out = io.BytesIO()
    pq.write_table(TABLE, out)
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(out.getvalue()))
    got = read(tmp_path / "a.parquet.gz", spool=tmp_path / "spool")
    assert got.rows() == TABLE.to_pylist()
    assert got.plan.sources[0].name.endswith("a.parquet.gz")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_utf16_is_transcoded(tmp_path: Path, encoding: str, pack: Any) -> None:
    text = '{"a": "caf\u00e9 \U0001f600"}\r\n{"a": "\u4e2d"}\n'
    (tmp_path / "a.jsonl").write_bytes(pack(text.encode(encoding)))
    got = read(tmp_path / "a.jsonl", spool=tmp_path / "spool")
    assert [row["a"] for row in got.rows()] == ["caf\u00e9 \U0001f600", "\u4e2d"]
    (event,) = got.found(EventKind.UTF16)
    assert event.row == -1
    assert not got.found(EventKind.BOM)


def test_utf16_with_half_a_pair(tmp_path: Path) -> None:
    text = '{"a": "x"}\n{"a": "\ud83d"}\n{"a": "y"}\n'
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe" + text.encode("utf-16-le", "surrogatepass") + b"\x7b")
    got = read(tmp_path / "a.jsonl", spool=tmp_path / "spool")
    assert got.kinds()[1] is EventKind.INVALID_UTF8
    assert "surrogate" in got.second.strays[0, 1].event.detail
    assert got.kinds()[3] is EventKind.INVALID_UTF8
    assert [row["a"] for row in got.rows()] == ["x", "y"]


def test_standard_input_is_spooled_once(tmp_path: Path) -> None:
    path = spool_stdin(tmp_path / "spool", io.BytesIO(TEXT))
    assert Path(path).read_bytes() == TEXT
    assert spool_stdin(tmp_path / "spool", io.BytesIO(b"")) == path
    assert Path(path).read_bytes() == TEXT
    spool_stdin(tmp_path / "spool", io.BytesIO(b"{}\n"))
    assert Path(path).read_bytes() == b"{}\n"


def test_a_spool_that_cannot_be_written(tmp_path: Path) -> None:
    write(tmp_path / "file")
    with pytest.raises(SourceError, match="cannot write"):
        spool_stdin(tmp_path / "file" / "spool", io.BytesIO(b"x"))


@pytest.mark.parametrize("size", [7, 1000, 1 << 20])
def test_gzip_members_are_each_read_once(tmp_path: Path, size: int) -> None:
    lines = [b'{"text": "member %d"}\n' % i for i in range(200)]
    path = tmp_path / "many.jsonl.gz"
    path.write_bytes(b"".join(gzip.compress(line) for line in lines))
    stream = open_stream(str(path), "gz")
    got = b"".join(iter(lambda: stream.read(size), b""))
    assert got == b"".join(lines)
    assert stream.error is None
