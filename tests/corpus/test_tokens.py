"""Tokens: what a word is in each script, and properties that hold for any text."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanse.corpus import ngram_kernel
from cleanse.corpus.characters import CHARACTER, INVISIBLE, LOOKALIKE, MARK, WORD
from cleanse.corpus.collect import normalised
from cleanse.corpus.exchanges import exchanges
from cleanse.corpus.tokens import HEAD, TAIL, tokenise
from cleanse.measures import TextBatch
from cleanse.records import Role


def tokens(text: str) -> list[tuple[str, int]]:
    batch = TextBatch.from_texts([text])
    found = tokenise(batch.data, batch.offsets)
    spans = zip(found.starts, found.ends, found.kinds, strict=True)
    return [(batch.data[a:b].tobytes().decode(), int(kind)) for a, b, kind in spans]


def test_words_marks_and_characters() -> None:
    assert tokens("It's 3D, na\u00efve") == [
        ("It", WORD), ("'", MARK), ("s", WORD), ("3D", WORD), (",", MARK), ("na\u00efve", WORD),
    ]  # fmt: skip
    assert tokens("\u4f60\u597d abc") == [("\u4f60", CHARACTER), ("\u597d", CHARACTER), ("abc", WORD)]
    assert tokens("\ud55c\uad6d\uc5b4 \ub9d0") == [("\ud55c\uad6d\uc5b4", WORD), ("\ub9d0", WORD)]


def test_invisible_characters_follow_their_word() -> None:
    assert tokens("ab\u200bcd ef") == [("ab\u200bcd", WORD), ("\u200b", INVISIBLE), ("ef", WORD)]
    hidden, plain = (TextBatch.from_texts([t]) for t in ("ab\u200bcd", "abcd"))
    assert tokenise(hidden.data, hidden.offsets).hashes[0] == tokenise(plain.data, plain.offsets).hashes[0]


def test_mixed_alphabets_are_marked() -> None:
    assert tokens("p\u0430y") == [("p\u0430y", WORD), ("p\u0430y", LOOKALIKE)]
    assert tokens("\u043f\u0430\u0440\u0430 pay") == [("\u043f\u0430\u0440\u0430", WORD), ("pay", WORD)]


def test_case_does_not_matter_to_tokens_but_to_the_exact_hash() -> None:
    batch = TextBatch.from_texts(["Caf\u00c9 OK", "caf\u00e9 ok"])
    found = tokenise(batch.data, batch.offsets)
    assert found.word_hash[0] == found.word_hash[1]
    assert (found.text_hash[0] != found.text_hash[1]).all()


def test_long_segments_are_cut_in_the_middle() -> None:
    words = [f"w{k}" for k in range(5000)]
    batch = TextBatch.from_texts([" ".join(words), " ".join([*words[:2000], "x", *words[2000:]])])
    found = tokenise(batch.data, batch.offsets)
    assert np.diff(found.offsets).tolist() == [HEAD + TAIL] * 2
    first, second = (found.hashes[a:b] for a, b in zip(found.offsets[:-1], found.offsets[1:], strict=True))
    assert np.array_equal(first, second)
    assert found.word_hash[0] != found.word_hash[1], "the whole text still counts"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=6))
def test_any_text_is_read_whatever_stands_beside_it(texts: list[str]) -> None:
    together = TextBatch.from_texts(texts)
    found = tokenise(together.data, together.offsets)
    for k, text in enumerate(texts):
        alone = TextBatch.from_texts([text])
        by_itself = tokenise(alone.data, alone.offsets)
        mine = slice(found.offsets[k], found.offsets[k + 1])
        assert np.array_equal(found.hashes[mine], by_itself.hashes)
        assert np.array_equal(found.text_hash[k], by_itself.text_hash[0])
        for a, b in zip(by_itself.starts, by_itself.ends, strict=True):
            alone.data[a:b].tobytes().decode("utf-8")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80))
def test_normalising_is_what_the_standard_library_does(text: str) -> None:
    data, offsets = normalised(TextBatch.from_texts([text]))
    assert data[: offsets[-1]].tobytes().decode() == unicodedata.normalize("NFC", text)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 6), max_size=40))
def test_ngrams_are_all_runs_of_one_to_five(numbers: list[int]) -> None:
    stream = np.array(numbers, np.uint64)
    hashes, orders, places = ngram_kernel.of_prompt(stream)
    wanted = {tuple(numbers[i : i + n]) for n in range(1, 6) for i in range(len(numbers) - n + 1)}
    got = {tuple(numbers[p : p + n]) for n, p in zip(orders.tolist(), places.tolist(), strict=True)}
    assert got == wanted
    assert len(set(hashes.tolist())) == len(wanted) == len(hashes)


def test_an_unknown_speaker_answers_where_nobody_else_does() -> None:
    roles = [Role.USER, Role.OTHER, Role.USER, Role.OTHER, Role.ASSISTANT]
    batch = TextBatch.from_texts(["x"] * len(roles))
    record, role = np.array([0, 0, 1, 1, 1]), np.array(roles, np.uint8)
    found = exchanges(TextBatch(batch.data, batch.offsets, record, role, batch.supervised, batch.is_null, 2))
    assert found.answer_segments.tolist() == [1, 4]
    assert found.prompt_segments.tolist() == [0, 2, 3]


def test_exchanges_of_conversations_and_pairs() -> None:
    roles = [
        Role.SYSTEM,
        Role.USER,
        Role.ASSISTANT,
        Role.USER,
        Role.ASSISTANT,
        Role.USER,
        Role.CHOSEN,
        Role.REJECTED,
        Role.TEXT,
        Role.ASSISTANT,
    ]
    record = [0, 0, 0, 0, 0, 1, 1, 1, 2, 3]
    batch = TextBatch.from_texts(["x"] * len(roles))
    batch = TextBatch(
        batch.data, batch.offsets, np.array(record), np.array(roles, np.uint8), batch.supervised, batch.is_null, 4
    )
    found = exchanges(batch)
    cut = [
        (
            int(found.record[k]),
            *(
                o[s[k] : s[k + 1]].tolist()
                for o, s in (
                    (found.prompt_segments, found.prompt_offsets),
                    (found.answer_segments, found.answer_offsets),
                )
            ),
        )
        for k in range(len(found))
    ]
    assert cut == [(0, [0, 1], [2]), (0, [3], [4]), (1, [5], [6]), (3, [], [9])]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=6))
def test_texts_are_composed_whatever_arrow_does(texts: list[str]) -> None:
    data, offsets = normalised(TextBatch.from_texts(list(texts)))
    found = [data[a:b].tobytes().decode() for a, b in pairwise(offsets.tolist())]
    assert found == [unicodedata.normalize("NFC", text) for text in texts]
