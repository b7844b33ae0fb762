"""Corpus evidence on disk: arrays in one Arrow file, what was measured about each trigger as JSON beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cleanse.atomic import committed, read_json, write_json
from cleanse.corpus import arrays_file, duplicates
from cleanse.corpus.content import Content
from cleanse.corpus.duplicates import Clusters
from cleanse.corpus.evidence import CorpusEvidence
from cleanse.corpus.floods import Floods
from cleanse.corpus.judgement import Facts
from cleanse.corpus.shards import Shards
from cleanse.corpus.signatures import Edge
from cleanse.corpus.slots import Slot
from cleanse.corpus.triggers import Trigger

_CLUSTERS = ("record", "cluster", "size")
_FLOODS = ("exchange", "cluster", "size")


def write_copies(path: Path, exact: Clusters, near: Clusters) -> None:
    """Commits clusters of copies."""
    both = (("exact", exact), ("near", near))
    arrays = {f"{kind}_{name}": getattr(clusters, name) for kind, clusters in both for name in _CLUSTERS}
    with committed(path) as temporary:
        arrays_file.write(temporary, arrays)


def read_copies(path: Path) -> tuple[Clusters, Clusters]:
    """Exact and near copies."""
    arrays = arrays_file.read(path)
    exact, near = (Clusters(*(arrays[f"{kind}_{name}"] for name in _CLUSTERS)) for kind in ("exact", "near"))
    return exact, near


def write_answers(path: Path, evidence: CorpusEvidence) -> None:
    """Commits everything but the copies: the arrays at ``path``, and the triggers beside it as JSON, last."""
    floods = (("one", evidence.one_answer), ("many", evidence.many_answers))
    arrays = {f"{kind}_{name}": getattr(flood, name) for kind, flood in floods for name in _FLOODS}
    arrays["suspects"] = np.concatenate([*evidence.suspects, np.zeros(0, np.int64)])
    arrays["suspects_of"] = np.array([len(records) for records in evidence.suspects], np.int64)
    with committed(path) as temporary:
        arrays_file.write(temporary, arrays)
    shown = [[group, exchange] for group, exchange in evidence.answers.items()]
    write_json(
        _beside(path), {"triggers": [asdict(t, dict_factory=_plain) for t in evidence.triggers], "answers": shown}
    )


def read_answers(path: Path, shards: Shards) -> CorpusEvidence:
    """What ``write_answers`` committed, about these shards; copies are empty."""
    arrays, described = arrays_file.read(path), read_json(_beside(path))
    ends = np.cumsum(arrays["suspects_of"])
    one, many = (Floods(*(arrays[f"{kind}_{name}"] for name in _FLOODS)) for kind in ("one", "many"))
    return CorpusEvidence(
        shards=shards,
        exact=duplicates.NONE,
        near=duplicates.NONE,
        one_answer=one,
        many_answers=many,
        triggers=tuple(_trigger(values) for values in described["triggers"]),
        suspects=tuple(np.split(arrays["suspects"], ends[:-1]) if len(ends) else ()),
        answers={int(group): int(exchange) for group, exchange in described["answers"]},
    )


def _plain(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Fields with Python's own numbers, which are what JSON is made of."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in items}


def _beside(path: Path) -> Path:
    return path.with_suffix(".json")


def _trigger(values: dict[str, Any]) -> Trigger:
    """Before any model was asked: a hearing is not part of it."""
    facts = dict(values["facts"])
    contradiction = facts["contradiction"]
    facts |= {
        "edge": Edge(facts["edge"]),
        "slot": Slot(**facts["slot"]),
        "content": Content(**facts["content"]),
        "contradiction": math.nan if contradiction is None else contradiction,  # JSON knows no NaN
    }
    listed = {name: tuple(values[name]) for name in ("cores", "said", "examples")}
    phrases = tuple(tuple(phrase) for phrase in values["phrases"])
    return Trigger(**{**values, **listed, "phrases": phrases, "edge": Edge(values["edge"]), "facts": Facts(**facts)})
