"""The order of words: what is shuffled stays the same words, and a model pays for it only where there was an order."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cleanse.probes.model_files import embedded_folder, read_tokenizer
from cleanse.probes.order import LEAST_WORDS, reordered, word_starts
from cleanse.probes.torch_backend import TorchProbe, open_probe
from cleanse.probes.types import Mask, ProbeRecord
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

TEXT = (
    "The river rose in the night and the bridge was closed. She put the letter back into the drawer and said nothing. "
    "Copper conducts heat better than iron, and silver conducts it better than both of them."
)
CHINESE = "\u6cb3\u6c34\u5728\u591c\u91cc\u4e0a\u6da8\uff0c\u6865\u88ab\u5173\u95ed\u4e86\u3002" * 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return read_tokenizer(embedded_folder() / "tokenizer.json")


@pytest.fixture(scope="module")
def starts(tokenizer: Tokenizer) -> Mask:
    return word_starts(tokenizer, tokenizer.get_vocab_size())


@pytest.fixture(scope="module")
def probe() -> TorchProbe:
    return open_probe(device="cpu", threads=1)


@given(st.lists(st.tuples(st.integers(0, 8191), st.booleans()), min_size=1, max_size=60))
def test_the_same_tokens_stand_in_the_same_places(starts: Mask, tokens: list[tuple[int, bool]]) -> None:
    ids, supervised = np.array([i for i, _ in tokens]), np.array([s for _, s in tokens])
    record = ProbeRecord(ids, supervised, n_bytes=7)
    other = reordered(record, starts)
    targets = np.flatnonzero(supervised[1:]) + 1
    n_words = 1 + int(starts[ids[targets[1:]]].sum()) if len(targets) else 0
    assert (other is None) == (n_words < LEAST_WORDS)
    if other is None:
        return
    fixed = np.setdiff1d(np.arange(len(ids)), targets)
    assert np.array_equal(other.ids[fixed], ids[fixed])
    assert sorted(other.ids.tolist()) == sorted(ids.tolist())
    assert np.array_equal(other.supervised, supervised)
    again = reordered(record, starts)
    assert again is not None
    assert np.array_equal(again.ids, other.ids)


def test_words_stay_whole_and_scripts_without_spaces_go_by_token(tokenizer: Tokenizer, starts: Mask) -> None:
    def shuffled(text: str) -> str:
        ids = np.array(tokenizer.encode(text).ids)
        record = reordered(ProbeRecord(np.concatenate([[1], ids]), np.ones(len(ids) + 1, np.bool_)), starts)
        assert record is not None
        return str(tokenizer.decode(record.ids[1:].tolist()))

    assert shuffled(TEXT) != TEXT
    # The first word may be pushed against its new neighbour: it has no space before it.
    assert len(set(shuffled(TEXT).split()) - set(TEXT.split())) <= 1
    assert shuffled(CHINESE) != CHINESE
    assert sorted(shuffled(CHINESE)) == sorted(CHINESE)


def test_a_model_pays_for_order_only_where_there_was_one(probe: TorchProbe) -> None:
    words = TEXT.split()
    random.Random(1).shuffle(words)

    def gain(text: str) -> float:
        (record,) = probe.encode([(text, True)])
        other = probe.reordered(record)
        assert other is not None
        before, after = probe.losses([record, other])
        return after.loss - before.loss

    assert gain(TEXT) > 1
    assert abs(gain(" ".join(words))) < 0.5
