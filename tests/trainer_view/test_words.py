"""Token counts from distinct words: where they are exact, how far off they may be, and what they survive."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_tokenizers import real
from toy_tokenizer import toy

from cleanse.measures import TextBatch
from cleanse.trainer_view import word_table, words
from cleanse.trainer_view.cut_kernel import byte_classes, cut, longest_period
from cleanse.trainer_view.guarded import encode_all, guarded
from cleanse.trainer_view.words import ERROR_SHARE, ERROR_TOKENS, WordCounter

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)


def pieces_of(text):
    data = np.frombuffer(text.encode(), np.uint8)
    keys, numbers = np.zeros(1 << 10, np.uint64), np.zeros(1 << 10, np.int32)
    pieces, first = np.zeros(len(data) + 1, np.int32), np.zeros(2, np.int64)
    starts, ends = np.zeros(512, np.int64), np.zeros(512, np.int64)
    state, longest = np.zeros(4, np.int64), np.zeros(1, np.int64)
    new = cut(
        data, np.array([0, len(data)]), byte_classes(), keys, numbers, state, pieces, first, starts, ends, longest
    )
    known = [data[a:b].tobytes() for a, b in zip(starts[:new], ends[:new], strict=True)]
    return [known[p] for p in pieces[: state[1]]], int(longest[0])


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_pieces_are_the_text_cut_at_characters(text):
    pieces, longest = pieces_of(text)
    assert b"".join(pieces) == text.encode()
    lengths = [len(p.decode()) for p in pieces]  # raises where a character is cut in two
    assert max(lengths, default=0) == longest


def test_cuts_where_pretokenizers_do():
    assert pieces_of("Hello world, it's 12am.\n\n  x")[0] == [
        *(b"Hello", b" world", b",", b" it", b"'s", b" 12", b"am", b".\n\n", b" ", b" x")
    ]
    assert [p.decode() for p in pieces_of("\u4f60\u597d\uff0c\u4e16\u754c\u3002\u597d")[0]] == [
        "\u4f60\u597d",
        "\uff0c\u4e16\u754c",
        "\u3002\u597d",
    ]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 13))
def test_longest_period_against_the_definition(ids, most):
    best, lag = np.zeros(1, np.int64), np.zeros(1, np.int64)
    longest_period(np.array(ids, np.int32), np.array([0, len(ids)]), most, best, lag)
    wanted = min(1, len(ids))
    for period in range(1, min(most, len(ids) - 1) + 1):
        for start in range(len(ids) - period):
            stop = start + period
            while stop < len(ids) and ids[stop] == ids[stop - period]:
                stop += 1
            if stop - start >= 2 * period:
                wanted = max(wanted, (stop - start) // period)
    assert best[0] == wanted


@pytest.fixture(scope="module")
def by_language(shared_data):
    found = {}
    for line in (shared_data / "clean" / "corpus.jsonl").read_bytes().splitlines():
        row = json.loads(line)
        found.setdefault(row["lang"], []).append(row["text"])
    return [text for texts in found.values() for text in texts[:20]]


@pytest.mark.parametrize("name", ["qwen", "deepseek", "mistral"])
def test_counts_stay_within_the_stated_bound(name, by_language):
    loaded = real(name)
    counted = WordCounter(loaded).tally(TextBatch.from_texts(by_language)).tokens
    exact = np.array([len(e.ids) for e in loaded.tokenizer.encode_batch_fast(by_language, add_special_tokens=False)])
    off = np.abs(counted - exact)
    assert (off <= ERROR_SHARE * exact + ERROR_TOKENS).all(), np.sort(off / exact)[-5:]


def test_small_memory_gives_the_same_counts(by_language, monkeypatch):
    some = TextBatch.from_texts(by_language[:60])
    counter = WordCounter(toy())
    wanted = counter.tally(some)
    assert np.array_equal(wanted.tokens, np.diff(some.offsets))  # one id per byte
    monkeypatch.setattr(words, "MOST_WORDS", 10)
    monkeypatch.setattr(words, "_GROUP_BYTES", 3000)
    again = counter.tally(some)
    for tally in (again, counter.tally(some)):
        for key in ("tokens", "longest", "repeats", "byte_pieces"):
            assert np.array_equal(getattr(tally, key), getattr(wanted, key)), key


@pytest.fixture(scope="module")
def sampled_and_full(by_language):
    counter = WordCounter(real("qwen"))
    cut_texts = counter.cut(TextBatch.from_texts(by_language))
    first = counter.count(cut_texts, np.zeros(len(by_language), np.bool_))
    full = counter.count(cut_texts, np.ones(len(by_language), np.bool_))
    return first, full, counter.count(cut_texts, np.zeros(len(by_language), np.bool_))


def test_a_sample_never_hides_a_long_text(sampled_and_full):
    first, full, _ = sampled_and_full
    assert (first.most >= full.tokens).all()
    assert full.full.all()
    assert np.array_equal(full.most, full.tokens)
    assert not first.full.all()


def test_a_sample_does_not_depend_on_what_was_learnt_before(sampled_and_full):
    first, _, again = sampled_and_full
    for key in ("tokens", "byte_pieces", "unknown", "failed", "repeats"):
        assert np.array_equal(getattr(first, key), getattr(again, key)), key


def test_a_sample_is_near_the_whole(sampled_and_full):
    first, full, _ = sampled_and_full
    off = np.abs(first.tokens - full.tokens) / np.maximum(full.tokens, 1)
    assert np.median(off) < 0.05
    assert np.quantile(off, 0.99) < 0.5


def test_features_per_word():
    counter = WordCounter(toy(), glitch=[toy().tokenizer.token_to_id("z")], model_vocab_size=200)
    tally = counter.tally(TextBatch.from_texts(["a zebra zz", "\u4f60", "plain", "a<|im_end|>"]))
    assert tally.glitch.tolist() == [3, 0, 0, 0]
    assert tally.byte_pieces.tolist() == [0, 3, 0, 0]
    assert tally.beyond[1] > 0
    assert tally.beyond[2] == 0


@pytest.mark.parametrize("name", ["qwen", "mistral"])
@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("x" * 524_288, 524_288),
        ("e" + "\u0301" * 100_000, 100_001),
        ("\U0001f600" * 262_144, 262_144),
        ("\u4f60" * 30_000, 30_000),
    ],
    ids=["letters", "marks", "emoji", "ideographs"],
)
def test_pathological_runs_are_measured_and_never_encoded(name, text, characters, monkeypatch):
    counter = WordCounter(real(name))
    counter.tally(TextBatch.from_texts(["warm up the kernels"]))
    encoded = []
    monkeypatch.setattr(counter._table, "_together", encoded.extend)
    monkeypatch.setattr(word_table, "encode_all", lambda _, some: encoded.extend(some) or [None] * len(some))
    start = time.process_time()
    tally = counter.tally(TextBatch.from_texts([text]))
    assert time.process_time() - start < 1
    assert tally.longest.tolist() == [characters]
    assert encoded == []


def test_words_together_are_words_apart(by_language):
    pieces = sorted({piece for text in by_language[::3] for piece in text.split()} | {"", " ", "\n\n", "e\u0301"})
    for name in ("qwen", "mistral", "tekken"):
        table = WordCounter(real(name))._table
        flat, lengths = table._together(pieces)
        wanted, counts, failed = table._apart(pieces)
        assert np.array_equal(flat, wanted), name
        assert np.array_equal(lengths, counts), name
        assert not failed.any()
    assert table._together(["a", "b" + word_table._SEPARATOR]) is None


class PanicException(BaseException):
    """What pyo3 raises when Rust code panics: no Exception."""


class Panicking:
    """Encodes anything but texts with a bomb in them."""

    class _Encoding:
        ids = (1, 2)

        def __len__(self):
            return 2

    def encode_batch_fast(self, texts, **_):
        if any("bomb" in t for t in texts):
            raise PanicException("index out of bounds")
        return [self._Encoding() for _ in texts]


def test_a_panic_costs_only_the_word_that_causes_it(monkeypatch):
    found = encode_all(Panicking(), ["a", "b", "bomb", "c", "bomb", "d"])
    assert [e is None for e in found] == [False, False, True, False, True, False]
    counter = WordCounter(toy())
    monkeypatch.setattr(counter._table, "_inner", Panicking())
    tally = counter.tally(TextBatch.from_texts(["fine words", "a bomb here"]))
    assert tally.failed.tolist() == [0, 1]


def test_only_panics_and_errors_are_caught():
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guarded(stop)
    assert guarded(lambda: 1 // 0) is None
