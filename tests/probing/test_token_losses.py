"""Pieces of text with losses: they are the text again, and every loss stands at its token."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from cleanse.probing.token_losses import pieces


def bytes_tokenizer() -> Tokenizer:
    """Every byte is a token: characters outside ASCII are several."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


PROBE = SimpleNamespace(tokenizer=bytes_tokenizer())


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=2, max_size=40))
def test_the_pieces_are_the_text(text: str) -> None:
    ids = np.array(PROBE.tokenizer.encode(text).ids)
    window = SimpleNamespace(ids=ids, supervised=np.ones(len(ids), np.bool_))
    found = pieces(PROBE, window, np.arange(1, len(ids), dtype=np.float32))
    assert "".join(piece["text"] for piece in found) == text
    if "\ufffd" not in text:
        assert len(found) == len(text)


def test_each_loss_stands_at_its_token_and_the_largest_at_a_character_of_several() -> None:
    ids = np.array(PROBE.tokenizer.encode("a\u4f60b").ids)
    supervised = np.array([False, True, True, True, False])
    found = pieces(PROBE, SimpleNamespace(ids=ids, supervised=supervised), np.array([1.0, 7.0, 2.0], np.float32))
    assert found == [
        {"text": "a", "loss": None},
        {"text": "\u4f60", "loss": pytest.approx(7.0)},
        {"text": "b", "loss": None},
    ]
