"""A cluster whose input and output are objects in an S3 store: no disk is shared, and the bytes are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from storage_server import Bucket, LostDriver

from cleanse.config import ScanConfig
from cleanse.errors import CleanseError
from cleanse.pipeline import scan
from cleanse.sources import ReadOptions
from cleanse.storage.filesystem import output
from scripts.local_cluster import cluster
from scripts.make_sample import sample

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'corpus-cleanse[ray]'")

SAME = ("clean/", "quarantine/", "findings.parquet", "triggers.parquet")


@pytest.fixture
def nodes(s3: Bucket) -> Iterator[Any]:
    """Two nodes, whose processes are started with the environment that leads to the store."""
    with cluster(2) as made:
        yield made


def test_from_a_bucket_to_a_bucket(s3: Bucket, nodes: Any, tmp_path: Path) -> None:
    lines = sample(300).splitlines(keepends=True)
    s3.put("raw/a.jsonl", b"".join(lines[:200]))
    s3.put("raw/b.jsonl", b"".join(lines[200:]))

    def config(out: str, **more: Any) -> ScanConfig:
        folder, url = output(out)
        read = ReadOptions(shard_bytes=20_000)
        return ScanConfig((f"{s3.url}/raw/*.jsonl",), folder, url=url, read=read, probe=None, **more)

    scan(config(str(tmp_path / "out"), workers=1))
    asked = config(f"{s3.url}/out", engine="ray", address=nodes.address)
    with pytest.raises(CleanseError, match="the driver is lost"):
        scan(asked, evidence=[LostDriver()])
    assert len(s3.keys("out/.cleanse/inspect/")) > 8, "what the nodes did is in the store"
    result = scan(asked)
    assert result.read == len(result.load_clean()) + result.quarantined
    names = [p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()]
    expected = {name: (tmp_path / "out" / name).read_bytes() for name in names if name.startswith(SAME)}
    found = {key.removeprefix("out/"): s3.get(key) for key in s3.keys("out/")}
    assert {name: data for name, data in found.items() if name.startswith(SAME)} == expected
    assert not asked.out.exists()
