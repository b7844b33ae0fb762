"""Counts in bins: compared with a plain count, and the same however the records came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cleanse.distributions import LENGTHS, Distributions, merge
from cleanse.measures import TextBatch


def plain(texts: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for text in texts:
        edge = max((int(e) for e in LENGTHS if e <= len(text)), default=0)
        counts[str(edge)] = counts.get(str(edge), 0) + 1
    return counts


def counted(texts: list[str]) -> Distributions:
    seen = Distributions()
    seen.add(TextBatch.from_texts(list(texts)))
    return seen


@given(st.lists(st.text(max_size=60), min_size=1, max_size=30), st.integers(0, 30))
def test_lengths_are_those_of_a_plain_count_in_any_blocks(texts: list[str], cut: int) -> None:
    whole = counted(texts).to_json()
    assert whole["characters"] == plain(texts)
    parts = [counted(part).to_json() for part in (texts[:cut], texts[cut:]) if part]
    assert merge(parts) == merge([whole])


def test_bins_are_merged_in_the_order_of_their_edges() -> None:
    assert list(merge([{"characters": {"10": 1}}, {"characters": {"2": 1, "10": 3}}])["characters"].items()) == [
        ("2", 1),
        ("10", 4),
    ]


def test_characters_per_token_is_over_the_whole_record() -> None:
    import numpy as np

    texts = TextBatch.from_texts(["four and more words"])
    seen = Distributions()
    seen.add(texts, np.array([4], np.int64))
    assert seen.to_json()["characters_per_token"] == {"4.75": 1}
