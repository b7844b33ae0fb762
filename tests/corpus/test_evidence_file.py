"""What the two halves of the merge commit is what was found, to the last bit."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np

from cleanse.corpus import evidence_file, merging, questions
from cleanse.corpus.evidence import CorpusEvidence, find_answers, find_copies, merge
from cleanse.corpus.merging import Half, MergeTask
from cleanse.corpus.shards import Shards
from cleanse.state import unit_path

from . import corpora
from .test_invariance import corpus_with_everything


def same(one: CorpusEvidence, other: CorpusEvidence) -> None:
    for name in ("exact", "near", "one_answer", "many_answers"):
        mine, theirs = vars(getattr(one, name)), vars(getattr(other, name))
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[key], theirs[key]) for key in mine), name
    assert [a.tolist() for a in one.suspects] == [a.tolist() for a in other.suspects]
    assert dict(one.answers) == dict(other.answers)
    assert len(one.triggers) == len(other.triggers)
    for mine, theirs in zip(one.triggers, other.triggers, strict=True):
        assert without_nan(dataclasses.asdict(mine)) == without_nan(dataclasses.asdict(theirs))
        assert type(mine.edge) is type(theirs.edge)
        assert mine.facts.is_label == theirs.facts.is_label


def without_nan(values: dict) -> dict:
    """NaN is unlike itself: a word stands for it."""
    return {
        key: without_nan(v) if isinstance(v, dict) else "NaN" if isinstance(v, float) and math.isnan(v) else v
        for key, v in values.items()
    }


def test_evidence_comes_back_as_it_was(tmp_path: Path) -> None:
    shards = Shards(corpora.features(corpus_with_everything(), tmp_path))
    found = dataclasses.replace(find_answers(shards), **dict(zip(("exact", "near"), find_copies(shards), strict=True)))
    assert found.triggers
    assert len(found.exact)
    assert len(found.near)
    assert len(found.many_answers.exchange)
    assert any(math.isnan(t.facts.contradiction) for t in found.triggers)
    evidence_file.write_copies(tmp_path / "copies.arrow", found.exact, found.near)
    evidence_file.write_answers(tmp_path / "answers.arrow", found)
    exact, near = evidence_file.read_copies(tmp_path / "copies.arrow")
    same(
        dataclasses.replace(evidence_file.read_answers(tmp_path / "answers.arrow", shards), exact=exact, near=near),
        found,
    )


def test_nothing_comes_back_as_nothing(tmp_path: Path) -> None:
    shards = Shards(corpora.features(corpora.clean(30), tmp_path))
    evidence_file.write_copies(tmp_path / "copies.arrow", *find_copies(shards))
    evidence_file.write_answers(tmp_path / "answers.arrow", find_answers(shards))
    assert [len(clusters) for clusters in evidence_file.read_copies(tmp_path / "copies.arrow")] == [0, 0]
    read = evidence_file.read_answers(tmp_path / "answers.arrow", shards)
    assert (read.triggers, read.suspects, dict(read.answers)) == ((), (), {})


def test_the_two_jobs_say_what_one_process_says(tmp_path: Path) -> None:
    paths = corpora.features(corpus_with_everything(), tmp_path, shard_size=701)
    for number, path in enumerate(paths):
        target = unit_path(tmp_path, merging.FEATURES, number, ".arrow")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    jobs = list(merging.merging(tmp_path, len(paths)))
    assert {job.argument for job in jobs} == {MergeTask(half, len(paths), tmp_path) for half in Half}
    for job in reversed(jobs):
        assert all(path.exists() for path in job.reads)
        job.function(job.argument, lambda *_: None)
        assert all(path.exists() for path in job.writes)
    whole = merge(paths)
    same(merging.read_evidence(tmp_path, len(paths)), whole)
    asked = questions.read(merging.questions_path(tmp_path))
    assert asked == list(questions.questions(whole))
