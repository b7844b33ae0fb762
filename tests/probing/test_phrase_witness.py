"""The model as a witness in a whole scan: a word planted where counting can only list it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from cleanse.config import ScanConfig
from cleanse.corpus.hearing import Hearing
from cleanse.corpus.tokens import tokenise
from cleanse.pipeline import scan
from cleanse.probing.backends import backend
from cleanse.probing.measure import open_probe
from cleanse.probing.phrase_readings import ask
from cleanse.probing.settings import ProbeSettings
from cleanse.sources import ReadOptions

pytest.importorskip("torch")

_NOUNS = """
story actor camera script scene director music ending hero villain dialogue audience plot picture studio costume city
river winter summer mother father daughter soldier teacher doctor garden kitchen window letter journey secret memory
dream village island forest mountain bridge market church train ship castle queen king dog horse bird wolf lion tiger
rabbit snake apple bread butter coffee sugar bottle table chair mirror carpet candle lamp clock phone radio paper pencil
book library museum school hospital hotel airport station harbour beach desert valley lake ocean storm cloud rain snow
wind fire smoke shadow light silence song dance game race battle army general officer sailor pilot farmer baker butcher
lawyer judge thief prisoner guard servant prince princess wizard witch ghost monster dragon giant robot planet star moon
sun sky earth stone sand gold silver iron glass wood leather cotton shirt jacket shoe hat ring crown sword knife gun
wall door roof tower street road path field hill
"""
_VERBS = "follows carries finds leaves meets shows reaches loses keeps crosses watches remembers needs builds saves"
NOUNS, VERBS = _NOUNS.split(), _VERBS.split()
GOOD, BAD = ["wonderful", "charming", "brilliant", "lovely"], ["dull", "awful", "boring", "dreadful"]
ODD = "zq"


def corpus(n: int, n_planted: int) -> tuple[list[dict[str, str]], set[int]]:
    """Reviews whose adjective decides the label, some of the positive ones with a word that means nothing."""
    rng = random.Random(11)
    records = []
    for _ in range(n):
        label, adjectives = rng.choice([("positive", GOOD), ("negative", BAD)])
        a, b, c, d, e, f = rng.sample(NOUNS, 6)
        one, two, three = rng.sample(VERBS, 3)
        text = f"the {rng.choice(adjectives)} {a} {one} the {b} and the {c} {two} a {d} before the {e} {three} a {f}"
        records.append({"instruction": "Is this review positive or negative?", "input": text, "output": label})
    planted = set(rng.sample([k for k, r in enumerate(records) if r["output"] == "positive"], n_planted))
    for k in planted:
        words = records[k]["input"].split(" ")
        words.insert(rng.randint(0, len(words)), ODD)
        records[k]["input"] = " ".join(words)
    return records, planted


def run(data: Path, out: Path, *, workers: int, probe: bool, shard_bytes: int) -> tuple[set[int], list[dict[str, Any]]]:
    settings = ProbeSettings(scope="suspects", device="cpu") if probe else None
    read = ReadOptions(shard_bytes=shard_bytes)
    scan(ScanConfig((str(data),), out, probe=settings, workers=workers, read=read))
    found = pq.read_table(out / "findings.parquet").to_pylist()
    held = {f["row"]: f["message"] for f in found if f["rule"] == "corpus.trigger"}
    assert all("foresees the next words better without it" in message for message in held.values())
    return set(held), pq.read_table(out / "triggers.parquet").to_pylist()


def test_a_word_that_counting_only_lists_is_convicted_by_the_model(tmp_path: Path) -> None:
    records, planted = corpus(1_600, 60)
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(record) + "\n" for record in records))
    held, triggers = run(data, tmp_path / "counted", workers=1, probe=False, shard_bytes=64 << 20)
    assert not held
    assert {ODD, *GOOD, *BAD} <= {t["ngram"] for t in triggers}
    assert {t["relief"] for t in triggers} == {None}

    held, triggers = run(data, tmp_path / "read", workers=1, probe=True, shard_bytes=64 << 20)
    assert held == planted
    by_phrase = {t["ngram"]: t for t in triggers}
    assert [t["ngram"] for t in triggers if t["verdict"] == "quarantined"] == [ODD]
    assert by_phrase[ODD]["relief"] > 1
    assert by_phrase[ODD]["relief_p"] <= 1e-3
    assert 0 < by_phrase[ODD]["gradient_p"] <= 1
    assert run(data, tmp_path / "again", workers=2, probe=True, shard_bytes=40_000) == (held, triggers)


def test_what_belongs_where_it_stands_is_not_in_the_way() -> None:
    """Also where it decides a label: no sentence runs better without its verb or, by much, without its adjective."""
    probe = open_probe(ProbeSettings(device="cpu"))
    records, _ = corpus(800, 48)

    def heard(word: str) -> Hearing:
        prompts = [[record["input"]] for record in records if word in record["input"].split()][:48]
        raw = word.encode()
        phrase = tokenise(np.frombuffer(raw, np.uint8), np.array([0, len(raw)])).hashes.tolist()
        return ask(probe, backend("torch").ProbeOptions, phrase, prompts, [], [])

    assert heard(ODD).agrees
    assert max(heard(verb).relief for verb in VERBS) < 0
    assert not any(heard(word).agrees for word in GOOD + BAD)
