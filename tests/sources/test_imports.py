"""What a worker loads, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("datasets", "numba", "torch", "transformers", "pandas", "polars", "mindspore")


def loaded(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_importing_sources_is_light() -> None:
    assert not loaded("import cleanse.sources") & set(HEAVY)


@pytest.mark.parametrize(("name", "numba"), [("a.jsonl", False), ("a.csv", True), ("a.json", True)])
def test_reading_never_loads_datasets(tmp_path: Path, name: str, numba: bool) -> None:
    texts = {"a.jsonl": '{"a": 1}\n{"a": "x"}\n', "a.csv": "a\n1\n", "a.json": '[{"a": 1}]'}
    (tmp_path / name).write_text(texts[name])
    modules = loaded(
        "from pathlib import Path\n"
        "from cleanse.sources import *\n"
        f"made = plan([{str(tmp_path / name)!r}], ReadOptions(), Path('spool'))\n"
        "first = open_shard(made.shards[0], made.options)\n"
        "assert list(first)\n"
        "blocks = list(open_shard(made.shards[0], made.options, first.facts.types))\n"
        "assert blocks[0].batch.schema == first.facts.types.schema()"
    )
    # pyarrow itself loads pandas, where that is installed, to look at what it is given.
    assert not modules & (set(HEAVY) - {"numba", "pandas"})
    assert ("numba" in modules) == numba
