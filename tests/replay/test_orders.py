"""Orders without a trainer at hand: Megatron's index files, run files, refusals, invariants."""

import itertools
import json
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanse import replaying as replay
from cleanse.replaying.shuffles import MindSporeShuffle, datasets_shuffle, torch_randperm

# torch.randperm(10, generator=torch.Generator().manual_seed(42)), so that a machine without torch checks the kernel too
TORCH_42 = [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]


def test_randperm_without_torch():
    assert torch_randperm(10, 42).tolist() == TORCH_42
    code = "import sys, cleanse; cleanse.order('hf', 10, per_device_batch=2).at(1); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@given(st.integers(0, 500), st.integers(0, 2**32 - 1), st.integers(0, 4))
@settings(max_examples=50, deadline=None)
def test_mindspore_epochs_do_not_depend_on_the_way_there(n, seed, epoch):
    forward = MindSporeShuffle(n, seed)
    steps = [forward.epoch(e).tolist() for e in range(epoch + 1)]
    assert MindSporeShuffle(n, seed).epoch(epoch).tolist() == steps[-1]
    assert forward.epoch(0).tolist() == steps[0]
    assert sorted(steps[-1]) == list(range(n))


def test_datasets_shuffle_is_the_library_s():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"i": list(range(500))}).shuffle(seed=9)
    assert data["i"][:] == datasets_shuffle(500, 9).tolist()


@given(
    n=st.integers(1, 90),
    batch=st.integers(1, 6),
    accum=st.integers(1, 4),
    world=st.integers(1, 4),
    trainer=st.sampled_from(["hf", "sequential", "llama-factory", "deepspeed", "trl"]),
)
@settings(max_examples=150, deadline=None)
def test_every_row_is_fed_in_every_epoch(n, batch, accum, world, trainer):
    order = replay.order(trainer, n, per_device_batch=batch, accum=accum, world_size=world, seed=1)
    steps = [order.at(s) for s in range(1, 2 * order.steps_per_epoch + 2)]
    seen = {row for s in steps if s.epoch == 0 for row in s.rows}
    if trainer != "deepspeed":  # its accumulation windows cross the end of an epoch
        assert seen == set(range(n))
    for before, after in itertools.pairwise(steps):
        assert after.rows_before == before.rows
    for s in steps:
        assert set(s.rows) == {row for rank in s.micro_batches for micro in rank for row in micro}
        assert len(s.micro_batches) == world


def test_ten_million_rows_in_seconds():
    start = time.process_time()
    rows = replay.order("hf", 10_000_000, per_device_batch=4, accum=8, world_size=8, seed=42).at(400_000).rows
    assert len(rows) == 256
    replay.order("mindspore", 10_000_000, per_device_batch=4, seed=42).at(17)
    assert time.process_time() - start < 60  # compilation included; a loop in Python would take minutes


@pytest.fixture
def megatron_index(tmp_path):
    rng = np.random.default_rng(0)
    documents = rng.permutation(np.repeat(np.arange(12), 3)).astype(np.int32)
    starts = np.sort(rng.choice(np.arange(len(documents) * 10), 21, replace=False))
    samples = np.stack([starts // 10, starts % 10], axis=1).astype(np.int32)
    shuffle = rng.permutation(20).astype(np.uint32)
    for name, array in (("document", documents), ("sample", samples), ("shuffle", shuffle)):
        np.save(tmp_path / f"3f0c-GPTDataset-train-{name}_index.npy", array)
    np.save(tmp_path / "3f0c-GPTDataset-valid-shuffle_index.npy", shuffle)
    return tmp_path, documents, samples, shuffle


def test_megatron_reads_its_index_files(megatron_index):
    folder, documents, samples, shuffle = megatron_index
    order = replay.order("megatron", index_files=folder, per_device_batch=2, accum=2, world_size=2)
    for step in (1, 2):
        found = order.at(step)
        for rank in range(2):
            for micro in range(2):
                first = (step - 1) * 8 + micro * 4 + rank * 2  # MegatronPretrainingSampler: chunks of a micro-batch
                want = []
                for i in shuffle[first : first + 2]:
                    a, b = samples[i][0], samples[i + 1][0]
                    want += list(dict.fromkeys(documents[a : b + 1].tolist()))
                assert list(found.micro_batches[rank][micro]) == want
    assert replay.order("megatron", index_files=folder / "3f0c-GPTDataset-train-sample_index.npy").settings.rows == 20
    with pytest.raises(replay.OrderUnknown, match="index files"):
        replay.order("megatron", 20)
    with pytest.raises(ValueError, match="no file"):
        replay.order("megatron", index_files=folder / "else")


def test_pickles_are_never_opened(tmp_path):
    (tmp_path / "training_args.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(ValueError, match="pickle"):
        replay.read_settings(tmp_path / "training_args.bin")
    with pytest.raises(ValueError, match="holds no args.json"):
        replay.read_settings(tmp_path)
    np.save(tmp_path / "x-shuffle_index.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "x-sample_index.npy", np.zeros((2, 2)))
    np.save(tmp_path / "x-document_index.npy", np.zeros(2))
    with pytest.raises(ValueError, match="memory-mapped: Python objects"):
        replay.order("megatron", index_files=tmp_path)


def test_ms_swift_args(tmp_path):
    args = {
        "swift_version": "3.12.1",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "global_world_size": 2,
        "seed": 1,
        "data_seed": 11,
        "dataset": ["my.jsonl"],
        "dataset_shuffle": False,
        "train_dataloader_shuffle": True,
        "packing": False,
        "streaming": False,
    }
    (tmp_path / "args.json").write_text(json.dumps(args))
    order = replay.order(config=tmp_path, rows=101)
    permutation = torch_randperm(100, 11)
    assert order.at(1).micro_batches[1] == tuple(tuple(permutation[1::2][k : k + 2].tolist()) for k in (0, 2, 4, 6))
    assert order.notes
    (tmp_path / "args.json").write_text(json.dumps({**args, "dataset": ["my.jsonl#50"]}))
    with pytest.raises(replay.OrderUnknown, match="sampled rows"):
        replay.order(config=tmp_path, rows=101)
    del args["swift_version"]
    (tmp_path / "args.json").write_text(json.dumps(args))
    with pytest.raises(replay.OrderUnknown, match="four ways"):
        replay.order(config=tmp_path, rows=101)


def test_llama_factory_yaml(tmp_path):
    path = tmp_path / "lora_sft.yaml"
    path.write_text(
        "stage: sft\nfinetuning_type: lora\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n"
        "disable_shuffling: true\ndataset: mine\nlearning_rate: 1.0e-4\nseed: 5\n"
    )
    assert replay.order(config=path, rows=20).at(2).rows == tuple(range(8, 16))
    path.write_text(path.read_text() + "val_size: 0.1\n")
    with pytest.raises(replay.OrderUnknown, match="validation"):
        replay.order(config=path, rows=20)
    assert replay.order(config=path, row_ids=[f"r{i}" for i in range(20)]).at(1).rows[0] == "r0"
    path.write_text("a: [1, 2\n")
    with pytest.raises(ValueError, match="not valid YAML"):
        replay.order(config=path, rows=20)
    path.write_text("just text")
    with pytest.raises(ValueError, match="holds no settings"):
        replay.order(config=path, rows=20)


@pytest.mark.parametrize(
    ("trainer", "values", "why"),
    [
        ("hf", {"seedable_sampler": False}, "global generator"),
        ("accelerate", {}, "seedable sampler"),
        ("hf", {"sampling": "group_by_length"}, "group_by_length"),
        ("hf", {"ignore_data_skip": True}, "resumed_at"),
        ("trl", {"streaming": True}, "streamed"),
        ("torch", {"accum": 3, "per_device_batch": 4}, "accum_tail"),
        ("llama-factory", {"packing": True}, "packs"),
        ("mindspore", {}, "random"),
        ("ms-swift", {"sampling": "group_by_length", "version": "4.0.0"}, "token counts"),
    ],
)
def test_an_unknown_order_says_why(trainer, values, why):
    with pytest.raises(replay.OrderUnknown, match=why):
        replay.order(trainer, 20, **values).at(1)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="no trainer is called"):
        replay.order("keras", 20)
    with pytest.raises(TypeError, match="no such setting: batchsize"):
        replay.order("hf", 20, batchsize=3)
    with pytest.raises(TypeError, match="how many rows"):
        replay.order("hf")
    with pytest.raises(ValueError, match="count from 1"):
        replay.order("hf", 20).at(0)
    with pytest.raises(ValueError, match="do not fill one batch"):
        replay.order("hf", 3, per_device_batch=4, drop_last=True)
    with pytest.raises(ValueError, match="20 rows"):
        replay.order("hf", 20, row_ids=["a"])
