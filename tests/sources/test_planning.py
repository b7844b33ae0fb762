"""Which files an input means, what they are taken for, and the words when there is nothing to read."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pyarrow as pa
import pytest

from cleanse.sources import Plan, ReadOptions, SourceError, plan

from .reading import read, write
from .test_types import saved


def planned(tmp_path: Path, *inputs: Any, **options: Any) -> Plan:
    return plan([str(i) for i in inputs], ReadOptions(**options), tmp_path / "spool")


def names(made: Plan, below: Path) -> list[str]:
    return [str(Path(source.name).relative_to(below)) for source in made.sources]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    (root / "b" / ".git").mkdir(parents=True)
    for name in ("2.jsonl", "10.jsonl", "b/1.jsonl.gz", "b/3.csv", "b/skip.png", "b/.git/x.jsonl", "_meta.json"):
        write(root / name, '{"a": 1}')
    return root


def test_folders_globs_and_order(tmp_path: Path, folder: Path) -> None:
    assert names(planned(tmp_path, folder), folder) == ["10.jsonl", "2.jsonl", "b/1.jsonl.gz", "b/3.csv"]
    assert names(planned(tmp_path, folder / "*.jsonl"), folder) == ["10.jsonl", "2.jsonl"]
    assert names(planned(tmp_path, folder / "**/*.jsonl*"), folder) == ["10.jsonl", "2.jsonl", "b/1.jsonl.gz"]
    assert names(planned(tmp_path, folder / "b/3.csv", folder / "2.jsonl"), folder) == ["b/3.csv", "2.jsonl"]
    twice = planned(tmp_path, folder / "2.jsonl", folder / "*.jsonl")
    assert names(twice, folder) == ["2.jsonl", "10.jsonl"]
    assert [source.index for source in twice.sources] == [0, 1]
    assert [shard.index for shard in twice.shards] == list(range(len(twice.shards)))


@pytest.mark.parametrize("text", [".", "*.jsonl", "**/*.jsonl"])
def test_what_the_scan_itself_has_written_is_no_input(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.jsonl", "out/clean.jsonl", "out/clean/b.jsonl", "output.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b'{"a": 1}\n')
    monkeypatch.chdir(tmp_path)
    for out in ("out", str(tmp_path / "out")):
        made = plan([text], ReadOptions(), Path("out/.cleanse/spool"), out)
        assert [Path(source.name).name for source in made.sources] == ["a.jsonl", "output.jsonl"]
    with pytest.raises(SourceError, match="nothing but this scan's own output"):
        plan(["out/clean"], ReadOptions(), Path("out/.cleanse/spool"), "out")


def test_a_pattern_that_matches_the_new_output_folder(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", '{"a": 1}')
    (tmp_path / "out" / ".cleanse").mkdir(parents=True)
    found = plan([f"{tmp_path}/*"], ReadOptions(), tmp_path / "out/.cleanse/spool", str(tmp_path / "out"))
    assert [source.name for source in found.sources] == [f"{tmp_path}/a.jsonl"]


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    path = write(tmp_path / "a[1].jsonl", '{"a": 1}')
    assert len(planned(tmp_path, path).sources) == 1


def test_the_plan_depends_on_inputs_and_options_only(tmp_path: Path, folder: Path) -> None:
    one, other = planned(tmp_path, folder, shard_bytes=3), planned(tmp_path / "elsewhere", folder, shard_bytes=3)
    assert one == other
    assert sum(shard.stop - shard.start for shard in one.shards) == sum(s.n_bytes for s in one.sources)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("missing.jsonl", "no such file"),
        ("*.parquet", "no file matches"),
        ("empty-folder", "no file of a known format"),
        ("picture.dat", "unknown format"),
        ("archive.zip", "zip file"),
        ("model.jsonl", "pickle file"),
        ("old.feather", "feather version 1"),
        ("bad.parquet", "does not begin like a Parquet file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: Any, text: str, expected: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty-folder").mkdir()
    Path("picture.dat").write_bytes(b"\x89PNG\r\n")
    Path("archive.zip").write_bytes(b"PK\x03\x04rest")
    Path("model.jsonl").write_bytes(b"\x80\x04\x95rest")
    Path("old.feather").write_bytes(b"FEA1rest")
    Path("bad.parquet").write_bytes(b"not parquet")
    inputs = text if text != "*.parquet" else "none-*.parquet"
    with pytest.raises(SourceError, match=expected) as error:
        planned(tmp_path, inputs)
    assert inputs in str(error.value)


def test_no_input_and_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no input"):
        planned(tmp_path)
    with pytest.raises(SourceError, match="expected one of auto, jsonl"):
        planned(tmp_path, tmp_path, input_format="xml")


def test_an_input_format_overrides_the_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.log", '{"a": 1}', "plain")
    assert planned(tmp_path, path).sources[0].kind == "jsonl"
    assert planned(tmp_path, path, input_format="text").sources[0].kind == "text"
    assert [r["text"] for r in read(path, input_format="text").rows()] == ['{"a": 1}', "plain"]


def test_json_that_is_really_jsonl_is_cut_into_shards(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", *['{"a": 1}'] * 50)
    made = planned(tmp_path, path, shard_bytes=100)
    assert made.sources[0].kind == "jsonl"
    assert len(made.shards) == 5


def test_save_to_disk_folders(tmp_path: Path) -> None:
    got = read(write(tmp_path / "a.jsonl", '{"a": 1}', '{"a": 2}'))
    both = tmp_path / "both"
    both.mkdir()
    saved(got, both / "train")
    saved(got, both / "test")
    (both / "train" / "cache-1.arrow").write_bytes(b"left over")
    (both / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    again = read(both)
    assert names(again.plan, both) == ["train/data-00000-of-00001.arrow", "test/data-00000-of-00001.arrow"]
    assert again.rows() == [{"a": 1}, {"a": 2}] * 2
    (both / "train" / "state.json").write_text('{"_data_files": [{"filename": "../../a.jsonl"}]}')
    with pytest.raises(SourceError, match="outside of the folder"):
        planned(tmp_path, both)
    (both / "train" / "state.json").write_text('{"_data_files": [{"filename": "gone.arrow"}]}')
    with pytest.raises(SourceError, match="not there"):
        planned(tmp_path, both)


def test_a_folder_saved_by_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"a": list(range(20)), "t": ["x"] * 20}).select(range(0, 20, 2))
    datasets.DatasetDict(train=made, test=made).save_to_disk(
        str(tmp_path / "saved"), num_shards={"train": 3, "test": 1}
    )
    got = read(tmp_path / "saved")
    assert [r["a"] for r in got.rows()] == list(range(0, 20, 2)) * 2
    assert len(got.plan.sources) == 4


def test_head_gives_python_values_as_they_stand(tmp_path: Path) -> None:
    lines = ['{"a": "x"}', "broken", '{"b": [1, "y"]}', '{"a": NaN}'] * 100
    made = planned(tmp_path, write(tmp_path / "a.jsonl", *lines), shard_bytes=50)
    assert made.head(made.sources[0], 2) == [{"a": "x"}, {"b": [1, "y"]}]
    assert len(made.head(made.sources[0], 250)) == 250
    assert len(made.head(made.sources[0], 1000)) == 300
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    made = planned(tmp_path, tmp_path / "b.csv")
    assert made.head(made.sources[0]) == [{"a": "1", "b": "2"}]


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'[{"a": 1}, {"a": 2}]')))
    got = read("-", spool=tmp_path / "spool")
    assert got.rows() == [{"a": 1}, {"a": 2}]
    assert got.plan.sources[0].name == "-"


class Stream:
    """What ``datasets.load_dataset(..., streaming=True)`` gives, as far as it is used."""

    def __init__(self, tables: list[pa.Table]) -> None:
        self.tables = tables
        self.features = None

    def with_format(self, kind: str) -> Stream:
        assert kind == "arrow"
        return self

    def iter(self, batch_size: int) -> Any:
        assert batch_size >= 1
        yield from self.tables


def test_a_hub_id_is_streamed_into_the_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [pa.table({"text": ["a", "b"], "n": [1, 2]}), pa.table({"text": ["c"], "n": [3]})]
    calls: list[Any] = []

    def load_dataset(name: str, config: str | None, *, split: str | None, streaming: bool) -> Any:
        calls.append((name, config, split, streaming))
        return Stream(tables) if split else {"train": Stream(tables), "test": Stream(tables[1:])}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    got = read("owner/name", spool=tmp_path / "spool")
    assert calls[0] == ("owner/name", None, None, True)
    assert [source.name for source in got.plan.sources] == ["owner/name:train", "owner/name:test"]
    assert [r["text"] for r in got.rows()] == ["a", "b", "c", "c"]
    got = read("hub:owner/name:config:test", spool=tmp_path / "spool")
    assert calls[1] == ("owner/name", "config", "test", True)
    assert [source.name for source in got.plan.sources] == ["owner/name:config:test"]
    tables.clear()  # streamed before: the spool is used
    assert len(read("owner/name", spool=tmp_path / "spool").rows()) == 4


def test_a_hub_stream_by_datasets_itself(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    from cleanse.sources.hub import spool_hub

    stream = datasets.Dataset.from_dict({"text": ["a"] * 2500, "m": [[{"role": "u"}]] * 2500}).to_iterable_dataset()
    ((name, path),) = spool_hub("owner/name", tmp_path, load=lambda *a, **k: stream)
    got = read(path, spool=tmp_path)
    assert name == "owner/name"
    assert len(got.rows()) == 2500
    assert got.rows()[0] == {"text": "a", "m": [{"role": "u"}]}


@pytest.mark.parametrize("late", [False, True])
def test_a_hub_that_fails(tmp_path: Path, late: bool) -> None:
    from cleanse.sources.hub import spool_hub

    class Broken(Stream):
        def iter(self, batch_size: int) -> Any:
            yield pa.table({"a": [1]})
            raise ConnectionError("gone")

    def load(*args: Any, **more: Any) -> Any:
        if late:
            return Broken([])
        raise FileNotFoundError("no such data set")

    with pytest.raises(SourceError, match="owner/name.*check the name and the network"):
        spool_hub("owner/name", tmp_path, load=load)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SourceError, match="expected a hub id"):
        spool_hub("hub:../etc", tmp_path, load=load)


def test_facts_are_plain_json(tmp_path: Path) -> None:
    got = read(write(tmp_path / "a.jsonl", '{"a": [1, {"b": "x"}]}', "", "broken"))
    facts = got.first.facts[0].to_json()
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["n_records"], facts["n_read"], facts["n_blank"]) == (3, 2, 1)


def test_a_saved_dataset_without_its_list_of_files_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    datasets.Dataset.from_dict({"text": ["a", "b"]}).save_to_disk(folder)
    (folder / "state.json").unlink()
    with pytest.raises(SourceError, match=r"state\.json"):
        plan((str(folder),), ReadOptions(), tmp_path / "spool")
