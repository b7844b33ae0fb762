"""Files below a URL and their copies here: on a real S3 server, and on a file system where files grow in sight."""

from __future__ import annotations

import uuid
from pathlib import Path

import fsspec
import pytest
from click.testing import CliRunner
from storage_server import Bucket

import cleanse
from cleanse.cli import main
from cleanse.errors import CleanseError, UsageError
from cleanse.storage.files import RemoteFiles
from cleanse.storage.filesystem import opened, output, without_secrets
from cleanse.storage.remote import Remote


@pytest.fixture(params=["s3", "memory"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "s3":
        return request.getfixturevalue("s3").url + "/out"
    return f"memory://{uuid.uuid4().hex}/out"


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_a_file_goes_there_and_comes_back(url: str, tmp_path: Path) -> None:
    here, there = Remote(url, tmp_path / "a"), Remote(url, tmp_path / "b")
    for name, data in {"x.json": b"1", "deep/er/y.bin": b"\0" * 11_000_000, "empty": b""}.items():
        here.push(written(tmp_path / "a" / name, data))
        assert there.pull(tmp_path / "b" / name).read_bytes() == data
    sizes = {tmp_path / "b/x.json": 1, tmp_path / "b/deep/er/y.bin": 11_000_000, tmp_path / "b/empty": 0}
    assert there.listed() == sizes


def test_a_pull_keeps_what_is_here_and_misses_what_is_nowhere(url: str, tmp_path: Path) -> None:
    remote = Remote(url, tmp_path)
    written(tmp_path / "mine", b"mine")
    assert remote.pull(tmp_path / "mine").read_bytes() == b"mine"
    with pytest.raises(FileNotFoundError):
        remote.pull(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"], "no half of a file stays behind"


def test_a_move_can_be_made_again(url: str, tmp_path: Path) -> None:
    remote = Remote(url, tmp_path)
    remote.push(written(tmp_path / "a", b"1"))
    for _ in range(2):
        remote.move(tmp_path / "a", tmp_path / "new" / "b")
    assert set(remote.listed()) == {tmp_path / "new" / "b"}
    remote.remove(tmp_path / "new" / "b")
    remote.remove(tmp_path / "new" / "b")
    assert remote.listed() == {}


def test_a_file_that_s3_will_not_copy_is_carried(s3: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleanse.storage.remote._S3_COPIES", 3)
    remote = Remote(f"{s3.url}/out", tmp_path)
    remote.push(written(tmp_path / "a", b"12345"))
    (tmp_path / "a").unlink()
    carried = []
    monkeypatch.setattr(Remote, "push", lambda self, path, push=Remote.push: (carried.append(path), push(self, path)))
    for _ in range(2):
        remote.move(tmp_path / "a", tmp_path / "new" / "b")
    assert carried == [tmp_path / "new" / "b"]
    assert s3.get("out/new/b") == b"12345"
    assert remote.listed() == {tmp_path / "new" / "b": 5}
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_half_a_file_of_a_killed_process_is_swept(tmp_path: Path) -> None:
    url = f"memory://{uuid.uuid4().hex}/out"
    Remote(url, tmp_path).push(written(tmp_path / "whole", b"1"))
    with fsspec.open(f"{url}/half.tmp", "wb") as half:
        half.write(b"1")
    files = RemoteFiles(Remote(url, tmp_path))
    files.sweep()
    assert files.below(tmp_path) == [tmp_path / "whole"]
    assert set(Remote(url, tmp_path).listed()) == {tmp_path / "whole"}


def test_each_is_here_only_while_it_is_looked_at(url: str, tmp_path: Path) -> None:
    names = [f"{i:03d}" for i in range(40)]
    files = RemoteFiles(Remote(url, tmp_path))
    for name in names:
        files.send(written(tmp_path / name, name.encode()))
        (tmp_path / name).unlink()
    seen = []
    for path in files.each(tmp_path / name for name in names):
        seen.append(path.read_text())
        assert len(list(tmp_path.iterdir())) <= 16
    assert seen == names
    assert not list(tmp_path.iterdir())


def test_a_bucket_that_is_not_there_is_named(s3: object, tmp_path: Path) -> None:
    remote = Remote("s3://no-such-bucket-anywhere/out", tmp_path)
    with pytest.raises(CleanseError, match="s3://no-such-bucket-anywhere/out .a. cannot be written"):
        remote.push(written(tmp_path / "a", b"1"))


def test_a_protocol_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nosuch://"):
        Remote("nosuch://place/out", tmp_path)


def test_a_place_that_cannot_be_written_is_no_defect(tmp_path: Path, s3: Bucket) -> None:
    """Clients behind fsspec raise errors of their own kinds."""
    with pytest.raises(UsageError, match=r"cannot be \w+: .* name another place"):
        Remote(f"{s3.endpoint}/{s3.name}/out", tmp_path).push(written(tmp_path / "a", b"1"))


def test_a_server_that_does_not_answer_is_no_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: str) -> None:
        raise OSError("When resolving region for bucket 'b': no network")

    monkeypatch.setattr("cleanse.storage.filesystem._native", refuses)
    with pytest.raises(CleanseError, match="no network. Check the address") as caught:
        opened("s3://b/out")
    assert not isinstance(caught.value, UsageError)


def test_outputs_are_folders_or_urls() -> None:
    assert output("some/folder") == (Path("some/folder"), None)
    assert output("file:///some/folder") == (Path("/some/folder"), None)
    folder, url = output("s3://bucket/out/")
    assert url == "s3://bucket/out"
    assert folder.is_absolute()
    assert folder == output("s3://bucket/out")[0] != output("s3://bucket/other")[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("s3://", "names no place"),
        ("s3:///", "names no place"),
        ("S3://bucket/out", "small letters"),
        (str(Path("s3://bucket/out")), "two slashes"),
    ],
)
def test_a_misspelt_url_is_no_folder_of_this_machine(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        output(name)


def test_a_slash_before_the_parameters_is_no_other_place() -> None:
    assert output("s3://bucket/out/?region=x") == output("s3://bucket/out?region=x")
    assert output("s3://bucket/out/?region=x")[1] == "s3://bucket/out?region=x"


@pytest.mark.parametrize(
    "url", ["s3://name:SECRET@no bucket/out", "s3://name:SEC/RET+@no bucket/out?key=SECRET", "hdfs://u:SECRET@h:8x/out"]
)
def test_a_url_that_no_client_takes_is_named_without_its_secrets(url: str) -> None:
    with pytest.raises(UsageError, match="cannot be opened") as caught:
        opened(url)
    assert "SEC" not in str(caught.value)
    assert "RET" not in str(caught.value)


def test_a_secret_may_hold_slashes() -> None:
    assert without_secrets("s3://name:SEC/RET/@bucket/out@1") == "s3://bucket/out@1"
    assert opened("s3://name:SEC/RET/@bucket/out?region=us-east-1")[1] == "bucket/out"
    for url in ("hdfs://host:9000/a@b", "s3://bucket/a:b/c@d", "s3://bucket/a@b"):
        assert without_secrets(url) == url


def test_a_bucket_is_never_removed(s3: Bucket, tmp_path: Path) -> None:
    Remote(s3.url, tmp_path).vacate()
    files = RemoteFiles(Remote(f"{s3.url}/out", tmp_path))
    files.send(written(tmp_path / ".cleanse" / "run.json", b"{}"))
    s3.put("out/another.txt", b"written meanwhile")
    files.remove(tmp_path / ".cleanse")
    files.vacate(tmp_path)
    assert [key for key in s3.keys("") if not key.endswith("/")] == ["out/another.txt"]
    s3.delete("out/another.txt")
    files.vacate(tmp_path)
    assert s3.keys() == []


def test_commands_that_need_a_disk_say_so() -> None:
    with pytest.raises(UsageError, match="aws s3 sync s3://bucket/out OUT"):
        cleanse.release("s3://bucket/out", ids=["a"])
    for command in ("report", "review", "release"):
        said = CliRunner().invoke(main, [command, "s3://user:secret@bucket/out"])
        assert said.exit_code == 2
        assert "copy it to a disk first" in said.output
        assert "secret" not in said.output
