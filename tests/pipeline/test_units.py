from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cleanse.sources import Shard, Source
from cleanse.units import group

SIZE = 1000


def shards_of(sizes: list[tuple[int, int]]) -> list[Shard]:
    shards: list[Shard] = []
    for index, (n_bytes, n_shards) in enumerate(sizes):
        source = Source(index, f"{index}.jsonl", f"/{index}.jsonl", "jsonl", None, n_bytes)
        shards += [Shard(len(shards) + i, source, i, i + 1) for i in range(n_shards)]
    return shards


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 6)), max_size=30))
def test_units_cover_the_plan_in_order_and_stay_small(sizes: list[tuple[int, int]]) -> None:
    shards = shards_of(sizes)
    units = group(shards, SIZE)
    assert [shard for unit in units for shard in unit.shards] == shards
    assert [unit.index for unit in units] == list(range(len(units)))
    for unit in units:
        sizes_here = [shard.source.n_bytes // sizes[shard.source.index][1] for shard in unit.shards]
        assert len(unit.shards) == 1 or sum(sizes_here) <= SIZE


def test_many_small_files_share_a_unit_and_large_files_do_not() -> None:
    assert [len(unit.shards) for unit in group(shards_of([(10, 1)] * 50), SIZE)] == [50]
    assert [len(unit.shards) for unit in group(shards_of([(3000, 3)]), SIZE)] == [1, 1, 1]
    assert len(group(shards_of([(0, 1)] * 1000), SIZE)) > 1


def test_a_unit_names_what_it_reads() -> None:
    one, *_ = group(shards_of([(3000, 3)]), SIZE)
    assert str(one) == "shard 0 of 0.jsonl (0-1)"
