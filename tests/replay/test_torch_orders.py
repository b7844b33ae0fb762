"""Against torch itself, and against TRL's own preparation: the rows predicted are the rows fed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanse import replaying as replay
from cleanse.replaying.layouts import Rounds
from cleanse.replaying.shuffles import torch_randperm

torch = pytest.importorskip("torch", reason="these orders are compared with torch's own")


@given(st.integers(0, 3000), st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=80, deadline=None)
def test_randperm_is_torch_s(n, seed):
    generator = torch.Generator()
    generator.manual_seed(seed)
    assert torch.randperm(n, generator=generator).tolist() == torch_randperm(n, seed).tolist()


@given(
    n=st.integers(1, 60),
    batch=st.integers(1, 7),
    world=st.integers(1, 5),
    pad=st.booleans(),
    loader_drop_last=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_distributed_sampler(n, batch, world, pad, loader_drop_last):
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler

    loaders = []
    for rank in range(world):
        sampler = DistributedSampler(range(n), num_replicas=world, rank=rank, seed=5, drop_last=not pad)
        loaders.append((sampler, DataLoader(range(n), batch, sampler=sampler, drop_last=loader_drop_last)))
    made = {"seed": 5, "per_device_batch": batch, "world_size": world, "drop_last": loader_drop_last}
    if not len(loaders[0][1]):
        with pytest.raises(ValueError, match="do not fill one batch"):
            replay.order("torch", n, sampler_drop_last=not pad, **made)
        return
    order = replay.order("torch", n, sampler_drop_last=not pad, **made)
    step = 0
    for epoch in range(3):
        fed = []
        for sampler, loader in loaders:
            sampler.set_epoch(epoch)
            fed.append([tuple(b.tolist()) for b in loader])
        for batches in zip(*fed, strict=True):
            step += 1
            assert order.at(step).micro_batches == tuple((b,) for b in batches)


def accelerate_shards(n, batch, world, *, drop_last, even, split):
    accelerate = pytest.importorskip("accelerate.data_loader", reason="compared with accelerate's BatchSamplerShard")
    from torch.utils.data import BatchSampler

    return [
        list(
            accelerate.BatchSamplerShard(
                BatchSampler(range(n), batch, drop_last), world, rank, split_batches=split, even_batches=even
            )
        )
        for rank in range(world)
    ]


@given(
    n=st.integers(1, 70),
    batch=st.integers(1, 6),
    world=st.integers(2, 5),
    drop_last=st.booleans(),
    even=st.booleans(),
    split=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_rounds_are_accelerate_s(*, n, batch, world, drop_last, even, split):
    batch = batch * world if split else batch
    layout = Rounds(n, batch, world, drop_last, even, split)
    for rank, batches in enumerate(accelerate_shards(n, batch, world, drop_last=drop_last, even=even, split=split)):
        mine = [layout.positions(rank, k).tolist() for k in range(layout.micro_batches)]
        # without even_batches a rank may get nothing in the last round: accelerate then yields one batch less
        assert [b for b in mine if b] == batches


@pytest.mark.parametrize("strategy", ["bfd", "bfd_split", "wrapped"])
def test_packed_rows_are_found_by_their_row_id_column(strategy):
    datasets = pytest.importorskip("datasets")
    trl = pytest.importorskip("trl", reason="packs with TRL's own pack_dataset")
    lengths = [3 + (7 * i) % 11 for i in range(40)]
    data = datasets.Dataset.from_dict(
        {"input_ids": [[i] * m for i, m in enumerate(lengths)], "row_id": [[i] * m for i, m in enumerate(lengths)]}
    )
    packed = trl.pack_dataset(data, 24, strategy)
    order = replay.order("trl", row_ids=packed["row_id"], packing=True, per_device_batch=2, accum=2, seed=7)
    sampler = torch.utils.data.RandomSampler(packed, generator=torch.Generator().manual_seed(7))
    indices = list(sampler)
    for step in range(1, order.steps_per_epoch + 1):
        taken = indices[(step - 1) * 4 : step * 4]
        assert set(order.at(step).rows) == {token for i in taken for token in packed[i]["input_ids"]}


def test_packing_without_row_ids_is_refused():
    with pytest.raises(replay.OrderUnknown, match="count packs, not rows"):
        replay.order("trl", 100, packing=True)


@pytest.mark.parametrize("shuffled", [False, True])
def test_trl_s_trainer_feeds_what_is_predicted(tmp_path, shuffled):
    trl = pytest.importorskip("trl", reason="this test runs TRL's real SFTTrainer")
    transformers = pytest.importorskip("transformers")
    datasets = pytest.importorskip("datasets")
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    data = datasets.Dataset.from_dict({"input_ids": [[1 + i % 30, 1 + i // 30, 3] for i in range(45)]})
    fed = []

    class Recorder(trl.SFTTrainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            rows = tuple((a - 1) + 30 * (b - 1) for a, b, _ in inputs["input_ids"].tolist())
            fed.append((self.state.global_step + 1, rows))
            return super().training_step(model, inputs, num_items_in_batch)

    arguments = trl.SFTConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        seed=3,
        shuffle_dataset=shuffled,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
    )
    trainer = Recorder(
        transformers.LlamaForCausalLM(config),
        arguments,
        train_dataset=data,
        processing_class=tiny_tokenizer(transformers),
    )
    trainer.train()
    order = replay.order("trl", 45, per_device_batch=4, accum=2, seed=3, dataset_shuffled=shuffled)
    steps: dict = {}
    for step, rows in fed:
        steps.setdefault(step, []).append(rows)
    assert len(steps) == 12
    for step, batches in steps.items():
        assert order.at(step).micro_batches == (tuple(batches),)


def tiny_tokenizer(transformers):
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{i}": i for i in range(30)} | {"<pad>": 30, "</s>": 31}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", eos_token="</s>")
