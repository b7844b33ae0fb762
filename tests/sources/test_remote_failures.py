"""A network that fails is no damage of the data: reading goes on where it stopped, or ends with an error."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from storage_server import Bucket

from cleanse import inputs
from cleanse.errors import CleanseError
from cleanse.sources import ReadOptions, SourceError, open_shard, places, plan
from cleanse.storage import filesystem

from .reading import Read, read
from .test_arrow import arrow_file, arrow_stream, feather_lz4, parquet

LINES = b"".join(
    json.dumps({"n": i, "text": hashlib.sha512(b"%d" % i).hexdigest() * 3}).encode() + b"\n" for i in range(12_000)
)  # 5 MB
TABLE = pa.table({"text": [hashlib.sha512(b"%d" % i).hexdigest() * 3 for i in range(6000)], "n": list(range(6000))})


class Proxy:
    """Passes connections on to a server, and breaks those that answer with much, as often as it is told to."""

    def __init__(self, endpoint: str) -> None:
        place = urlsplit(endpoint)
        self.server = (place.hostname, place.port)
        self.breaks = 0  # answers still to be broken
        self.allowed = 100_000  # bytes of such an answer that get through
        self.broken = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                upstream = socket.create_connection(self.server)
                threading.Thread(target=self._pass, args=(client, upstream, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(upstream, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(65536):
                passed += len(data)
                if answers and passed > self.allowed and self.breaks > 0:
                    self.breaks -= 1
                    self.broken += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listener.close()


@pytest.fixture
def proxy(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A way to the bucket that can break."""
    proxy = Proxy(s3.endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    monkeypatch.setattr(places, "_PAUSES", (0.01, 0.01, 0.01))
    filesystem._native.cache_clear()
    yield proxy
    proxy.close()


def contents(tmp_path: Path) -> dict[str, bytes]:
    return {
        "a.jsonl": LINES,
        "a.jsonl.gz": gzip.compress(LINES),
        "a.txt": LINES,
        "a.parquet": parquet(tmp_path / "a.parquet", TABLE).read_bytes(),
        "a.arrow": arrow_file(tmp_path / "a.arrow", TABLE).read_bytes(),
        "b.arrow": arrow_stream(tmp_path / "b.arrow", TABLE).read_bytes(),
        "a.feather": feather_lz4(tmp_path / "a.feather", TABLE).read_bytes(),
        "b.parquet.zst": pa.Codec("zstd").compress(parquet(tmp_path / "b.parquet", TABLE).read_bytes(), asbytes=True),
        "w.jsonl": LINES[:2_000_000].decode().encode("utf-16"),
    }


class OwnError(Exception):
    """What only one client of fsspec raises."""


class Handle:
    """A file of such a client."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


class Wobbly(Handle):
    """One that gives less than it is asked for, and fails now and then."""

    turn = 0

    def read(self, size: int = -1) -> bytes:
        self.turn += 1
        if self.turn % 3 == 2:
            raise OwnError("a hiccup")
        return bytes(self.file.read(max(1, size // 2)))


class Broken(Handle):
    """One that fails for ever where a file is read beyond its middle, but for the end."""

    def __init__(self, file: Any, middle: int) -> None:
        super().__init__(file)
        self.middle = middle

    def read(self, size: int = -1) -> bytes:
        at = self.file.tell()
        got = bytes(self.file.read(size))
        if at < self.middle < at + len(got):
            raise OwnError("the line is dead")
        return got


NAMES = ("a.jsonl", "a.jsonl.gz", "a.txt", "a.parquet", "a.arrow", "b.arrow", "a.feather", "b.parquet.zst", "w.jsonl")


def everything(got: Read) -> tuple[Any, ...]:
    return got.second.records, got.second.strays, got.second.events, got.second.raw


@pytest.mark.parametrize("name", NAMES)
def test_a_connection_that_breaks_loses_nothing(tmp_path: Path, s3: Bucket, proxy: Proxy, name: str) -> None:
    data = contents(tmp_path)[name]
    (tmp_path / name).write_bytes(data)
    url = s3.put(name, data)
    whole = read(tmp_path / name, spool=tmp_path / "here", shard_bytes=2 << 20)
    proxy.breaks = 3
    got = read(url, spool=tmp_path / "there", shard_bytes=2 << 20)
    assert proxy.broken == 3
    assert everything(got) == everything(whole)
    assert not got.second.events or name == "w.jsonl"


def read_all(url: str, spool: Path) -> None:
    made = plan([url], ReadOptions(), spool)
    for shard in made.shards:
        list(open_shard(shard, made.options))


@pytest.mark.parametrize("name", NAMES)
def test_a_connection_that_stays_broken_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    root, data = uuid.uuid4().hex, contents(tmp_path)[name]
    fsspec.filesystem("memory").pipe(f"/{root}/{name}", data)
    opened = MemoryFileSystem.open
    monkeypatch.setattr(MemoryFileSystem, "open", lambda *a, **k: Broken(opened(*a, **k), len(data) // 2))
    monkeypatch.setattr(places, "_PAUSES", (0.0, 0.0))
    with pytest.raises(SourceError) as error:
        read_all(f"memory://{root}/{name}", tmp_path / "spool")
    assert f"memory://{root}/{name}: cannot be read (the line is dead)" in str(error.value)
    assert "run the same command again" in str(error.value)
    assert not list(tmp_path.glob("spool/*"))


def test_a_server_that_keeps_breaking_is_an_error(
    tmp_path: Path, s3: Bucket, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_PAUSES", ())  # Arrow's own client has some patience, too
    url = s3.put("a.jsonl", LINES)
    (source,) = plan([url], ReadOptions(), tmp_path / "spool").sources
    task = inputs.HashTask(source, tmp_path)
    proxy.breaks = 1 << 30
    with pytest.raises(SourceError, match=f"{url}: cannot be read .* run the same command again"):
        inputs.hash_source(task, lambda *_: None)
    assert proxy.broken > 1
    proxy.breaks = 0
    inputs.hash_source(task, lambda *_: None)
    (digest,) = tmp_path.glob("sha256/*.json")
    assert json.loads(digest.read_text()) == hashlib.sha256(LINES).hexdigest()


def test_a_server_that_is_not_there(tmp_path: Path, s3: Bucket, proxy: Proxy) -> None:
    proxy.close()
    with pytest.raises(SourceError, match=f"{s3.url}/x.jsonl: cannot be read .* check the address") as error:
        plan([f"{s3.url}/x.jsonl"], ReadOptions(), tmp_path / "spool")
    assert "\n" not in str(error.value)


def test_a_file_that_vanished_or_changed(tmp_path: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_PAUSES", (0.01,))
    url = s3.put("a.jsonl", LINES)
    made = plan([url], ReadOptions(), tmp_path / "spool")
    file = places.RemoteFile(url)
    assert file.read(10) == LINES[:10]
    s3.put("a.jsonl", LINES[:1000])
    file._drop()
    file.seek(1 << 20)
    with pytest.raises(SourceError, match="changed while it was read"):
        file.read(10)
    s3.delete("a.jsonl")
    with pytest.raises(SourceError, match=r"a\.jsonl: cannot be read"):
        list(open_shard(made.shards[0], made.options))
    with pytest.raises(SourceError, match="no such file"):
        places.status(url)


def test_a_client_of_fsspec_that_wobbles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = uuid.uuid4().hex
    fsspec.filesystem("memory").pipe(f"/{root}/a.jsonl", LINES)
    (tmp_path / "a.jsonl").write_bytes(LINES)
    opened = MemoryFileSystem.open
    monkeypatch.setattr(MemoryFileSystem, "open", lambda *a, **k: Wobbly(opened(*a, **k)))
    monkeypatch.setattr(places, "_PAUSES", (0.0,) * 3)
    got = read(f"memory://{root}/a.jsonl", spool=tmp_path / "spool", shard_bytes=1 << 20)
    assert everything(got) == everything(read(tmp_path / "a.jsonl", shard_bytes=1 << 20))


def test_an_error_of_ours_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places.time, "sleep", lambda seconds: pytest.fail("waited"))
    with pytest.raises(CleanseError, match="no client|cannot be opened"):
        places.RemoteFile("nothing://x/y").read(1)
