"""Inputs made to exhaust memory: read in a process of their own, with a bound on what it may hold."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

MIB = 1 << 20
READ = """
import json, resource, sys
from pathlib import Path
from cleanse.sources import ReadOptions, Types, open_shard, plan

path, small, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


def scan(path):
    made = plan([path], ReadOptions(**options), Path(path + ".spool"))
    types = Types()
    for second in (False, True):
        rows, strays, kinds = 0, 0, set()
        for shard in made.shards:
            reader = open_shard(shard, made.options, types if second else None)
            for block in reader:
                rows += block.batch.num_rows
                strays += len(block.strays)
                kinds |= {e.kind.value for e in block.events} | {s.event.kind.value for s in block.strays}
            types = types if second else types.merge(reader.facts.types)
    return {"rows": rows, "strays": strays, "kinds": sorted(kinds)}


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


scan(small)  # loads and compiles what reading this format takes
before = peak()
print(json.dumps(scan(path) | {"mib": peak() - before}))
"""


def in_a_process(path: Path, small: Path, **options: Any) -> dict[str, Any]:
    command = [sys.executable, "-c", READ, str(path), str(small), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def one_line(path: Path) -> None:
    """128 MiB without a line ending, between two records."""
    with path.open("wb") as out:
        out.write(b'{"a": "1"}\n')
        for _ in range(128):
            out.write(b"y" * MIB)
        out.write(b'\n{"a": "2"}\n')


def large_record(path: Path) -> None:
    """A well-formed record of 100 MiB."""
    with path.open("wb") as out:
        out.write(b'{"a": "1"}\n{"a": "')
        for _ in range(100):
            out.write(b"y" * MIB)
        out.write(b'"}\n{"a": "2"}\n')


def zeros(path: Path) -> None:
    """128 kB that unfold to 128 MiB in one line."""
    with gzip.open(path, "wb") as out:
        out.write(b'{"a": "1"}\n')
        for _ in range(128):
            out.write(bytes(MIB))
        out.write(b'\n{"a": "2"}\n')


def zstd_zeros(path: Path) -> None:
    """The same with zstd, which unfolds far more from far less."""
    with path.open("wb") as out, zstandard.ZstdCompressor(level=19).stream_writer(out) as packed:
        packed.write(b'{"a": "1"}\n')
        for _ in range(128):
            packed.write(bytes(MIB))
        packed.write(b'\n{"a": "2"}\n')


def newlines(path: Path) -> None:
    """32 MiB of blank lines in a small file."""
    with gzip.open(path, "wb") as out:
        out.write(b'{"a": "1"}\n')
        for _ in range(32):
            out.write(b"\n" * MIB)
        out.write(b'{"a": "2"}\n')


def blank(path: Path) -> None:
    path.write_bytes(b'{"a": "1"}\n' + b"\n" * 1_000_000 + b'{"a": "2"}\n')


def quoted(path: Path) -> None:
    """A CSV quote that is never closed: everything behind it is one row of 96 MiB."""
    with path.open("wb") as out:
        out.write(b'a,b\n1,2\n3,4\n5,"open\n')
        for _ in range(12):
            out.write(b"6,7\n" * (2 * MIB))


def element(path: Path) -> None:
    """An array element of 96 MiB."""
    with path.open("wb") as out:
        out.write(b'[{"a": "1"}, {"a": [')
        for _ in range(24):
            out.write(b'{"b": 1},\n' * (MIB * 4 // 10))
        out.write(b'{"b": 1}]}, {"a": "2"}]')


CASES = [
    (one_line, "a.jsonl", {"too_large"}),
    (large_record, "a.jsonl", {"too_large"}),
    (zeros, "a.jsonl.gz", {"too_large", "expansion"}),
    (zstd_zeros, "a.jsonl.zst", {"too_large", "expansion"}),
    (newlines, "a.jsonl.gz", {"blank_lines", "expansion"}),
    (blank, "a.jsonl", {"blank_lines"}),
    (quoted, "a.csv", {"too_large"}),
    (element, "a.json", {"too_large"}),
]


@pytest.mark.parametrize(("make", "name", "kinds"), CASES)
def test_memory_stays_bounded(tmp_path: Path, make: Callable[[Path], None], name: str, kinds: set[str]) -> None:
    make(tmp_path / name)
    small = {".csv": "a,b\n1,2\n", ".json": '[{"a": "1"}]'}.get(Path(name).suffix, '{"a": "1"}\n')
    (tmp_path / f"small{Path(name).suffix.removesuffix('.gz').removesuffix('.zst') or '.jsonl'}").write_text(small)
    (warm,) = tmp_path.glob("small*")
    got = in_a_process(tmp_path / name, warm, max_record_bytes=8 * MIB, block_bytes=1 * MIB, shard_bytes=32 * MIB)
    assert set(got["kinds"]) == kinds
    assert got["rows"] == 2
    assert got["strays"] == ("too_large" in kinds)
    assert got["mib"] < 64, got  # eight times the largest record that may be held
