"""The rows predicted for MindSpore are the rows that its own GeneratorDataset feeds."""

import numpy as np
import pytest

from cleanse import replaying as replay

ms = pytest.importorskip("mindspore", reason="these orders are compared with MindSpore's: pip install mindspore")
ds = pytest.importorskip("mindspore.dataset")


def fed(n, batch, epochs, *, shards=None, shard=None, drop_last=False, seed=None, shuffle=True):
    ms.set_seed(5489 if seed is None else seed)
    source = [np.array([i], dtype=np.int64) for i in range(n)]
    sharding = {"num_shards": shards, "shard_id": shard} if shards else {}
    data = ds.GeneratorDataset(source, ["row"], shuffle=shuffle, num_parallel_workers=1, **sharding)
    data = data.batch(batch, drop_remainder=drop_last)
    rows = data.create_tuple_iterator(num_epochs=epochs, output_numpy=True)
    return [[tuple(b[0].ravel().tolist()) for b in rows] for _ in range(epochs)]


@pytest.mark.parametrize("n", [1, 2, 20, 21, 1000, 70001])
@pytest.mark.parametrize("drop_last", [False, True])
def test_one_rank(n, drop_last):
    batch = 7 if n > 7 else 1
    epochs = fed(n, batch, 3, drop_last=drop_last, seed=42)
    order = replay.order("mindspore", n, seed=42, per_device_batch=batch, drop_last=drop_last)
    flat = [b for epoch in epochs for b in epoch]
    assert len(flat) == 3 * order.steps_per_epoch
    for step in {1, 2, len(flat) // 3, len(flat) // 3 + 1, len(flat) // 2, len(flat) - 1, len(flat)} - {0}:
        assert order.at(step).micro_batches == ((flat[step - 1],),), step


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.parametrize("n", [20, 21, 1001])
def test_shards(n, shards, shuffle):
    by_rank = [
        [b for e in fed(n, 3, 3, shards=shards, shard=r, seed=7, shuffle=shuffle) for b in e] for r in range(shards)
    ]
    order = replay.order("mindspore", n, seed=7, per_device_batch=3, world_size=shards, shuffle=shuffle)
    for step, batches in enumerate(zip(*by_rank, strict=True), 1):
        if n > 100 and step % 37:
            continue
        assert order.at(step).micro_batches == tuple((b,) for b in batches)


def test_without_a_seed_only_shards_have_an_order():
    with pytest.raises(replay.OrderUnknown, match="random"):
        replay.order("mindspore", 30)
    assert fed(1000, 1000, 1, seed=5489) != fed(1000, 1000, 1, seed=5489)  # MindSpore takes 5489 for "none was set"
    order = replay.order("mindspore", 30, per_device_batch=5, world_size=2)
    by_rank = [fed(30, 5, 1, shards=2, shard=r, seed=5489)[0] for r in range(2)]
    assert [order.at(s).micro_batches for s in (1, 2, 3)] == [((a,), (b,)) for a, b in zip(*by_rank, strict=True)]
