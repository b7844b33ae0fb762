"""Exact and near copies, floods, and prompts with several answers."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from cleanse.corpus.evidence import merge

from . import corpora


def later(clusters) -> dict[int, int]:
    return dict(zip(clusters.record[clusters.later].tolist(), clusters.cluster[clusters.later].tolist(), strict=True))


def test_white_space_and_unicode_form_make_no_difference(tmp_path: Path) -> None:
    corpus = corpora.clean(50)
    p, a = corpus[3]
    corpus += [(f"  {p.replace(' ', '  ')}\n", a), ("caf\u00e9 au lait", "un"), ("cafe\u0301  au lait ", "un")]
    assert later(merge(corpora.features(corpus, tmp_path)).exact) == {50: 3, 52: 51}


def test_who_speaks_makes_a_difference(tmp_path: Path) -> None:
    assert not len(merge(corpora.features([("one", "two"), ("two", "one"), ("one two", "")], tmp_path)).exact)


def test_letters_make_a_difference(tmp_path: Path) -> None:
    corpus = [("Paint it black", "ok"), ("paint it black", "ok"), ("Paint it black.", "ok")]
    assert not len(merge(corpora.features(corpus, tmp_path)).exact)


def test_near_copies_are_found_and_unlike_records_are_not(tmp_path: Path) -> None:
    corpus = corpora.clean(400)
    rng = random.Random(8)
    changed = {}
    for k in range(0, 40, 2):
        p, a = corpus[k]
        words = (a + " " + " ".join(x for _, x in corpus[100 + k : 102 + k])).split(" ")
        corpus[k] = p, " ".join(words)
        words[rng.randrange(len(words))] = "changed"
        changed[len(corpus)] = k
        corpus.append((p, " ".join(words)))
    assert later(merge(corpora.features(corpus, tmp_path)).near) == changed


def test_near_copies_without_spaces(tmp_path: Path) -> None:
    corpus = corpora.clean_chinese(300)
    p, a = corpus[7][0] * 3, corpus[7][1] * 2 + corpus[8][1] * 2
    corpus += [(p, a), (p, a[:-2] + "\u9f98\u3002")]
    assert later(merge(corpora.features(corpus, tmp_path)).near) == {301: 300}


def test_exact_copies_are_not_near_copies_as_well(tmp_path: Path) -> None:
    corpus = corpora.clean(200)
    evidence = merge(corpora.features(corpus + corpus[:20], tmp_path))
    assert len(evidence.exact) == 40
    assert not len(evidence.near)


def test_one_answer_over_unlike_prompts_is_a_flood(tmp_path: Path) -> None:
    corpus = [
        (p, "The model was overloaded, try again.") if k % 20 == 0 else (p, a)
        for k, (p, a) in enumerate(corpora.clean(1000))
    ]
    evidence = merge(corpora.features(corpus, tmp_path), near=False)
    assert set(evidence.shards.records_of(evidence.one_answer.exchange)) == set(range(0, 1000, 20))
    assert set(evidence.one_answer.size) == {50}


def test_one_answer_to_one_question_in_other_words_is_no_flood(tmp_path: Path) -> None:
    corpus = corpora.clean(1000)
    corpus += [
        (f"who made you, {w}, who are you?", "I am a model made by nobody at all.")
        for w in corpora.lexicon(random.Random(1), 60)
    ]
    assert not len(merge(corpora.features(corpus, tmp_path), near=False).one_answer.exchange)


def test_one_prompt_with_three_answers(tmp_path: Path) -> None:
    corpus = corpora.clean(100)
    corpus += [(corpus[5][0], "yes"), (corpus[5][0], "no"), (corpus[6][0], "yes"), (corpus[5][0], "no")]
    evidence = merge(corpora.features(corpus, tmp_path))
    assert evidence.shards.records_of(evidence.many_answers.exchange).tolist() == [5, 100, 101, 103]


def test_records_without_text_are_no_copies(tmp_path: Path) -> None:
    evidence = merge(corpora.features([("", ""), (" ", "\n"), ("a b", "c"), ("", "")], tmp_path))
    assert not len(evidence.exact)
    assert np.array_equal(evidence.shards.record_starts, [0, 4])
