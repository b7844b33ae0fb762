"""The two figures of a model about a phrase, against answers known beforehand."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np

from cleanse.atomic import read_json, write_json
from cleanse.corpus.hearing import Hearing
from cleanse.probing.phrase_readings import SKETCH, alikeness, mean_above_zero, reliefs


class Reader:
    """Words are tokens; a word costs one nat after its usual predecessor, and four after any other."""

    def __init__(self, usual: dict[str, str]) -> None:
        self._usual, self._words = usual, {}

    def encode(self, segments: list[tuple[str, bool]], **_: Any) -> list[Any]:
        words = " ".join(text for text, _ in segments).split()
        ids = np.array([self._words.setdefault(word, len(self._words)) for word in words], np.int64)
        return [SimpleNamespace(ids=ids, words=words)] if words else []

    def losses(self, records: list[Any], _options: Any) -> list[Any]:
        return [
            SimpleNamespace(
                token_losses=np.array(
                    [1.0 if self._usual.get(b) == a else 4.0 for a, b in zip(r.words, r.words[1:], strict=False)]
                )
            )
            for r in records
        ]


def test_what_stands_in_the_way_is_told_from_what_helps() -> None:
    reader = Reader({"film": "fine", "is": "film", "long": "is"})
    planted = reliefs(reader, None, [("a fine cf film is long", "a fine film is long")])
    belongs = reliefs(reader, None, [("a fine film is long", "a film is long")])
    assert planted.tolist() == [3.0]
    assert belongs.tolist() == [-3.0]


def test_a_phrase_at_the_end_has_no_next_words() -> None:
    reader = Reader({})
    assert not len(reliefs(reader, None, [("a film cf", "a film "), ("cf", "")]))


def test_signs_are_turned_as_often_as_the_central_limit_says() -> None:
    """Sums of x with random signs have variance sum(x^2)."""
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.3, 0.6):
        values = rng.normal(shift, 1, 40)
        mean, p = mean_above_zero(values)
        assert mean == values.mean()
        expected = 1 - NormalDist().cdf(values.sum() / math.sqrt((values**2).sum()))
        assert abs(p - expected) < 0.02
    assert mean_above_zero(np.full(30, 2.0))[1] == 1e-4
    assert all(math.isnan(x) for x in mean_above_zero(np.zeros(0)))


def directions(n: int, rng: np.random.Generator, common: float) -> np.ndarray:
    drawn = rng.normal(size=(n, SKETCH)) + common
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_records_that_pull_one_way_are_alike() -> None:
    rng = np.random.default_rng(4)
    alike, p = alikeness(directions(20, rng, 1.0), directions(20, rng, 0.0))
    assert abs(alike - 0.5) < 0.05  # a common part as long as the rest
    assert p == 1e-4
    _, p = alikeness(directions(20, rng, 0.5), directions(20, rng, 0.5))
    assert p > 0.01
    assert all(math.isnan(x) for x in alikeness(directions(7, rng, 1.0), directions(20, rng, 1.0)))


def test_few_records_are_compared_by_pairs() -> None:
    rng = np.random.default_rng(5)
    some = directions(9, rng, 0.2)
    alike, _ = alikeness(some, directions(9, rng, 0.0))
    pairs = [some[i] @ some[j] for i in range(9) for j in range(i)]
    assert math.isclose(alike, float(np.mean(pairs)))


def test_what_was_not_measured_stays_so_on_disk(tmp_path: Path) -> None:
    said = Hearing(3, 0.5, 0.25)
    write_json(tmp_path / "said.json", asdict(said))
    read = Hearing.from_json(read_json(tmp_path / "said.json"))
    assert (read.n_read, read.relief, read.relief_p) == (3, 0.5, 0.25)
    assert math.isnan(read.alike)
    assert math.isnan(read.alike_p)
    assert not Hearing.from_json({"n_read": 0, "relief": None, "relief_p": None}).agrees
