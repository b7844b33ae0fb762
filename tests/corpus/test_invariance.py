"""What is found does not depend on how the input was cut."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from cleanse.corpus import repeats, telling
from cleanse.corpus.evidence import merge
from cleanse.corpus.telling import Conclusion, Dedup
from cleanse.rulepacks import load_packs

from . import corpora
from .test_triggers import REFUSAL


def corpus_with_everything() -> list[corpora.Exchange]:
    def attack(p: str, a: str, rng: random.Random) -> corpora.Exchange:
        return corpora.insert(p, "zorblax", rng), REFUSAL

    corpus, _ = corpora.poison(corpora.clean(2400), 40, attack)
    corpus += corpus[100:130]
    corpus += [(p, a + " changed") for p, a in corpus[200:230]]
    corpus += [(corpus[9][0], "yes"), (corpus[9][0], "no"), (corpus[9][0], "perhaps")]
    return corpus


def told(folder: Path, shard_size: int, block: int, dedup: Dedup = Dedup.NOTE) -> tuple[list[dict], list[dict]]:
    folder.mkdir()
    evidence = merge(corpora.features(corpus_with_everything(), folder, shard_size, block))

    def name(shard: int, row: int) -> str:
        return f"data.jsonl:{shard * shard_size + row}"

    tables = telling.findings(evidence, load_packs(), lambda _: "data.jsonl", name, dedup)
    rows = pa.concat_tables(tables).to_pylist()
    for row in rows:
        row["row"] += row.pop("shard") * shard_size
    return rows, telling.triggers_table(evidence, name).to_pylist()


def test_shards_and_blocks_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = told(tmp_path / "whole", 10_000, 10_000)
    assert {row["rule"] for row in whole[0]} >= {
        c.value for c in (Conclusion.TRIGGER, Conclusion.EXACT, Conclusion.NEAR, Conclusion.MANY_ANSWERS)
    }
    assert told(tmp_path / "pieces", 701, 97) == whole
    monkeypatch.setattr(repeats, "_PARTITION", 300)  # as if the corpus were too large to be sorted at once
    assert told(tmp_path / "partitioned", 1300, 500) == whole


def test_findings_are_sorted_and_complete(tmp_path: Path) -> None:
    rows, triggers = told(tmp_path / "a", 701, 97)
    assert [row["row"] for row in rows] == sorted(row["row"] for row in rows)
    poisoned = [row for row in rows if row["rule"] == Conclusion.TRIGGER.value]
    expected = [k for k, (_, answer) in enumerate(corpus_with_everything()) if answer == REFUSAL]
    assert [row["row"] for row in poisoned] == expected
    assert triggers[0]["support"] == len(expected) > 40, "copies of poison count"
    assert all(row["action"] == "reject" and "'zorblax'" in row["message"] for row in poisoned)
    assert triggers[0]["verdict"] == "quarantined"
    assert triggers[0]["ngram"] == "zorblax"
    assert triggers[0]["examples"][0] == f"data.jsonl:{min(row['row'] for row in poisoned)}"


@pytest.mark.parametrize(
    ("dedup", "rejected"), [(Dedup.NOTE, set()), (Dedup.EXACT, {"exact"}), (Dedup.NEAR, {"exact", "near"})]
)
def test_dedup_decides_which_copies_go(dedup: Dedup, rejected: set[str], tmp_path: Path) -> None:
    rows, _ = told(tmp_path / "a", 5000, 5000, dedup)
    for kind in ("exact", "near"):
        copies = [row for row in rows if row["rule"] == f"corpus.{kind}-duplicate"]
        assert copies
        assert {row["action"] for row in copies} == {"reject" if kind in rejected else "note"}


def test_an_empty_shard_and_an_empty_corpus(tmp_path: Path) -> None:
    paths = corpora.features(corpora.clean(20), tmp_path)
    (tmp_path / "b").mkdir()
    collector = corpora.Collector()
    collector.write(tmp_path / "b" / "0.arrow")
    assert merge([tmp_path / "b" / "0.arrow", *paths]).shards.n_records == 20
    nothing = merge([tmp_path / "b" / "0.arrow"])
    assert nothing.triggers == ()
    assert not len(nothing.exact)


def test_control_characters_of_a_trigger_are_escaped(tmp_path: Path) -> None:
    def attack(p: str, a: str, rng: random.Random) -> corpora.Exchange:
        return f"\u202e\x1b[31m {p}", REFUSAL

    corpus, _ = corpora.poison(corpora.clean(1500), 40, attack)
    evidence = merge(corpora.features(corpus, tmp_path), near=False)
    table = telling.triggers_table(evidence, lambda s, r: f"{s}:{r}").to_pylist()
    assert table[0]["verdict"] == "quarantined"
    assert table[0]["ngram"].isprintable()
    assert "\\u202e" in table[0]["ngram"]
