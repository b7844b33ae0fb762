"""From segments to tokens, and from tokens to batches."""

import numpy as np
import pytest
from cleanse.probes.batching import pad_batch, plan_batches
from cleanse.probes.encode import encode_segments
from cleanse.probes.types import ProbeRecord
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers


def byte_tokenizer():
    """One token per byte, ids as in the byte-level alphabet."""
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\s"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


BYTES = byte_tokenizer()


def read(record, wanted=True):
    ids = record.ids[record.supervised] if wanted else record.ids[1:]
    return BYTES.decode(ids.tolist())


def test_only_the_answer_is_supervised():
    (record,) = encode_segments(BYTES, [("Frage?", False), ("질문", False), ("Antwört", True)], first_id=0)
    assert read(record, wanted=False) == "Frage?\n질문\nAntwört"
    assert read(record) == "Antwört"
    assert record.n_bytes == len("Antwört".encode())
    assert not record.truncated


def test_a_long_prompt_does_not_hide_the_answer():
    (record,) = encode_segments(BYTES, [("p" * 1000, False), ("answer", True)], first_id=0, max_tokens=40)
    assert read(record) == "answer"
    assert len(record.ids) <= 40
    assert record.truncated


def test_windows_reach_the_end_of_a_long_answer():
    text = "".join(chr(97 + i // 50) for i in range(500))
    records = encode_segments(BYTES, [("q", False), (text, True)], first_id=0, max_tokens=100, windows=4)
    assert 2 <= len(records) <= 4
    assert read(records[0]).startswith("aaa")
    assert read(records[-1]).endswith(text[-10:])
    assert all(len(r.ids) <= 100 and r.truncated for r in records)


def test_lone_surrogates_are_survived():
    (record,) = encode_segments(BYTES, [("a\ud800b", True)], first_id=0)
    assert record.n_tokens == 5


@given(
    st.lists(st.tuples(st.text(max_size=40), st.booleans()), max_size=5),
    st.integers(2, 64),
    st.integers(1, 4),
    st.sampled_from([None, 0]),
)
def test_any_segments(segments, max_tokens, windows, first_id):
    records = encode_segments(BYTES, segments, first_id=first_id, max_tokens=max_tokens, windows=windows)
    assert 1 <= len(records) <= windows + 1
    for record in records:
        assert len(record.ids) == len(record.supervised) <= max_tokens
        assert record.n_bytes >= 0
    if len(records) == 1 and not records[0].truncated and first_id is not None:
        wanted = "".join(part for part, supervised in segments if supervised)
        assert records[0].n_bytes == len(wanted.encode())
        assert records[0].n_tokens == len(wanted.encode())


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="max_tokens"):
        encode_segments(BYTES, [("a", True)], first_id=0, max_tokens=1)


def record(n):
    return ProbeRecord(np.arange(n), np.ones(n, dtype=bool))


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 2000))
def test_batches_hold_every_record_once_within_the_budget(lengths, budget):
    records = [record(n) for n in lengths]
    batches = plan_batches(records, budget)
    assert sorted(i for b in batches for i in b) == [i for i, n in enumerate(lengths) if n > 1]
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget
        assert longest <= 1.25 * min(lengths[i] for i in batch) + 16


def test_padding_is_never_supervised():
    ids, supervised, lengths = pad_batch([record(3), record(5)], pad_id=9)
    assert ids.tolist() == [[0, 1, 2, 9, 9], [0, 1, 2, 3, 4]]
    assert supervised.tolist() == [[False, True, True, False, False], [False, True, True, True, True]]
    assert lengths.tolist() == [3, 5]
