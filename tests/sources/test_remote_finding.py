"""Files, folders and patterns behind URLs mean what they mean on a disk."""

from __future__ import annotations

import glob
import itertools
import uuid
from pathlib import Path
from typing import Any

import datasets
import pytest
from storage_server import Bucket

from cleanse.errors import UsageError
from cleanse.sources import Plan, ReadOptions, SourceError, plan
from cleanse.sources.patterns import matches
from cleanse.storage.filesystem import joined, opened, without_secrets

from .reading import read

LINE = b'{"a": 1}\n'
NAMES = ("2.jsonl", "10.jsonl", "b/1.jsonl.gz", "b/3.csv", "b/c/3.csv", "b/skip.png", "b/.git/x.jsonl", "_meta.json",
         ".hidden.jsonl", "b/my data [1].jsonl", "b/x%20y#1+.jsonl")  # fmt: skip
PATTERNS = ["*", "*.jsonl", "**", "**/*.jsonl", "b/*", "b/**", "b/**/3.csv", "*/3.csv", "[0-9]*.jsonl", "?.jsonl",
            ".*", "b/.git/*", "**/.git/*", "*/*/*", "b/c", "**/c", "*/", "b/**/*.csv", "none*", "no/**/x*"]  # fmt: skip


def planned(tmp_path: Path, *urls: str, **options: Any) -> Plan:
    return plan(list(urls), ReadOptions(**options), tmp_path / "spool")


def names(made: Plan, below: str) -> list[str]:
    assert all(source.name.startswith(below + "/") for source in made.sources)
    return [source.name.removeprefix(below + "/") for source in made.sources]


@pytest.fixture
def folder(tmp_path: Path, s3: Bucket) -> Path:
    """The same files in a folder of this machine and in ``data/`` of the bucket."""
    for name in NAMES:
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LINE)
        s3.put(f"data/{name}", LINE)
    return tmp_path / "data"


def outcome(tmp_path: Path, text: str, below: str, **options: Any) -> list[str] | str:
    try:
        return names(planned(tmp_path, text, **options), below)
    except SourceError as error:
        return str(error).replace(below, "")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_mean_what_they_mean_on_a_disk(tmp_path: Path, s3: Bucket, folder: Path, pattern: str) -> None:
    for options in ({}, {"input_format": "jsonl"}):
        here = outcome(tmp_path, f"{folder}/{pattern}", str(folder), **options)
        there = outcome(tmp_path, f"{s3.url}/data/{pattern}", f"{s3.url}/data", **options)
        assert here == there


def test_folders_and_order(tmp_path: Path, s3: Bucket, folder: Path) -> None:
    url = f"{s3.url}/data"
    expected = names(planned(tmp_path, str(folder)), str(folder))
    assert expected[:3] == ["10.jsonl", "2.jsonl", "b/1.jsonl.gz"]
    assert names(planned(tmp_path, url), url) == names(planned(tmp_path, url + "/"), url) == expected
    assert names(planned(tmp_path, s3.url), url) == expected
    twice = planned(tmp_path, f"{url}/2.jsonl", f"{url}/*.jsonl", str(folder / "2.jsonl"))
    assert [source.index for source in twice.sources] == [0, 1, 2]
    assert [Path(source.name).name for source in twice.sources] == ["2.jsonl", "10.jsonl", "2.jsonl"]


def test_a_url_of_this_machine(tmp_path: Path, folder: Path) -> None:
    assert planned(tmp_path, f"file://{folder}/*.jsonl") == planned(tmp_path, f"{folder}/*.jsonl")


def test_names_as_they_are_written(tmp_path: Path, s3: Bucket, folder: Path) -> None:
    for name in ("b/my data [1].jsonl", "b/x%20y#1+.jsonl"):
        got = read(f"{s3.url}/data/{name}", spool=tmp_path / "spool")
        assert names(got.plan, f"{s3.url}/data") == [name]
        assert got.rows() == [{"a": 1}]


@pytest.mark.parametrize("fresh", range(5))
def test_a_walk_agrees_with_glob(tmp_path: Path, fresh: int) -> None:
    """Over a file system of fsspec, whose names are not below a bucket."""
    import fsspec

    memory, root = fsspec.filesystem("memory"), uuid.uuid4().hex
    for depth, name in itertools.product(range(3), ("a.jsonl", "b", ".c")):
        inside = "/".join([["d", ".e", "f"][(fresh + k) % 3] for k in range(depth)] + [name + str(depth)])
        (tmp_path / root / inside).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / root / inside).write_bytes(LINE)
        memory.pipe(f"/{root}/{inside}", LINE)
    for parts in itertools.product(["*", "**", "d", "[a-f]*", "?*1"], repeat=2):
        pattern = "/".join(parts)
        if parts == ("d", "d"):
            continue
        here = {m for m in glob.glob(f"{tmp_path}/{root}/{pattern}", recursive=True) if Path(m).is_file()}  # noqa: PTH207
        wanted = sorted(m.removeprefix(f"{tmp_path}/{root}/") for m in here)
        found = [url for url, info in matches(f"memory://{root}/{pattern}") if info.is_file]
        assert [url.removeprefix(f"memory://{root}/") for url in found] == wanted


def test_a_folder_saved_by_datasets(tmp_path: Path, s3: Bucket) -> None:
    made = datasets.Dataset.from_dict({"a": list(range(20)), "t": ["x"] * 20}).select(range(0, 20, 2))
    saved = tmp_path / "saved"
    datasets.DatasetDict(train=made, test=made).save_to_disk(str(saved), num_shards={"train": 3, "test": 1})
    for path in [p for p in saved.rglob("*") if p.is_file()]:
        s3.put(f"saved/{path.relative_to(saved)}", path.read_bytes())
    got = read(f"{s3.url}/saved", spool=tmp_path / "spool")
    assert [r["a"] for r in got.rows()] == list(range(0, 20, 2)) * 2
    assert names(got.plan, f"{s3.url}/saved") == names(planned(tmp_path, str(saved)), str(saved))
    s3.delete("saved/train/data-00001-of-00003.arrow")
    with pytest.raises(SourceError, match=r"data-00001-of-00003\.arrow: listed in .* but not there"):
        planned(tmp_path, f"{s3.url}/saved")
    s3.put("saved/train/state.json", b'{"_data_files": [{"filename": "../../2.jsonl"}]}')
    with pytest.raises(SourceError, match="outside of the folder"):
        planned(tmp_path, f"{s3.url}/saved")
    s3.delete("saved/train/state.json")
    with pytest.raises(SourceError, match=r"state\.json, which lists its files, is missing"):
        planned(tmp_path, f"{s3.url}/saved/train")


def test_what_is_not_there_is_named(tmp_path: Path, s3: Bucket, folder: Path) -> None:
    s3.put("data/b/skip.png", b"\x89PNG\r\n")
    cases = {
        f"{s3.url}/gone.jsonl": "no such file or folder",
        f"{s3.url}/data/*.parquet": "no file matches this pattern",
        f"{s3.url}/data/b/skip.png": "unknown format",
        "s3://cleanse-no-such-bucket/x.jsonl": "no such file or folder|cannot be",
    }
    for url, expected in cases.items():
        with pytest.raises((SourceError, UsageError), match=expected) as error:
            planned(tmp_path, url)
        assert url in str(error.value)
    with pytest.raises(SourceError, match="lost a slash"):
        planned(tmp_path, str(Path(f"{s3.url}/data/2.jsonl")))
    with pytest.raises(UsageError, match=r"nothing://x/y\.jsonl: .*nothing"):
        planned(tmp_path, "nothing://x/y.jsonl")


def test_a_client_of_fsspec(tmp_path: Path) -> None:
    import fsspec

    memory, root = fsspec.filesystem("memory"), uuid.uuid4().hex
    memory.pipe({f"/{root}/a.jsonl": LINE * 9, f"/{root}/b/c.csv": b"a\n1\n"})
    got = read(f"memory://{root}", spool=tmp_path / "spool", shard_bytes=20)
    assert names(got.plan, f"memory://{root}") == ["a.jsonl", "b/c.csv"]
    assert len(got.rows()) == 10
    first = got.plan.sources[0]
    assert first.changed_ns is not None
    assert planned(tmp_path, f"memory://{root}/*.jsonl").sources[0] == first
    memory.pipe(f"/{root}/a.jsonl", LINE * 3)
    assert planned(tmp_path, f"memory://{root}/a.jsonl").sources[0].n_bytes == 3 * len(LINE)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://key:secret@bucket/a?.jsonl", "s3://bucket/a?.jsonl"),
        ("s3://bucket/a.jsonl?access_key=AK&secret_key=SK/+", "s3://bucket/a.jsonl"),
        ("sftp://me:word@host:22/a/b.csv", "sftp://host:22/a/b.csv"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
        ("abfs://box:key@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
        ("hdfs://node:8020/a/b c.jsonl", "hdfs://node:8020/a/b c.jsonl"),
        ("a?b=c.jsonl", "a?b=c.jsonl"),
        ("s3://bucket", "s3://bucket"),
    ],
)
def test_secrets_stay_out_of_names(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


def test_a_secret_stays_out_of_messages(tmp_path: Path, s3: Bucket) -> None:
    for url in (
        f"s3://AKIA:hush@{s3.name}/gone.jsonl",
        f"{s3.url}/gone.jsonl?secret_key=hush&access_key=AKIA",
        "s3://AKIA:hush@/x",
        "nothing://AKIA:hush@x/y.jsonl",
    ):
        with pytest.raises((SourceError, UsageError)) as error:
            planned(tmp_path, url)
        assert "hush" not in str(error.value)
        assert "AKIA" not in str(error.value)


def test_one_client_serves_a_bucket(s3: Bucket) -> None:
    one, path = opened(f"{s3.url}/a b/c%20d.jsonl")
    other, _ = opened(f"{s3.url}/x")
    assert one is other
    assert path == f"{s3.name}/a b/c%20d.jsonl"
    assert joined(f"{s3.url}/a/?region=eu", "b/c") == f"{s3.url}/a/b/c?region=eu"


def test_what_the_scan_itself_has_written_there_is_no_input(tmp_path: Path, s3: Bucket) -> None:
    for key in ("data/a.jsonl", "data/out/clean.jsonl", "data/out/clean/b.jsonl", "data/output.jsonl"):
        s3.put(key, LINE)
    for out in (f"{s3.url}/data/out", f"{s3.url}/data/out?region=us-east-1"):
        made = plan([f"{s3.url}/data"], ReadOptions(), tmp_path / "spool", out)
        assert names(made, f"{s3.url}/data") == ["a.jsonl", "output.jsonl"]
    assert len(plan([f"{s3.url}/data"], ReadOptions(), tmp_path / "spool", str(tmp_path)).sources) == 4
