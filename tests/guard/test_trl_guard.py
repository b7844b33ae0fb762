"""The guard inside TRL's real SFTTrainer: plain rows, and packs that keep a row_id column."""

import pytest

from cleanse import replaying as replay
from cleanse.guard import Guard, Ledger

trl = pytest.importorskip("trl", reason="this test runs TRL's real SFTTrainer: pip install trl")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
tokenizers = pytest.importorskip("tokenizers")


def tokenizer():
    words = {f"w{i}": i for i in range(62)} | {"<pad>": 62, "</s>": 63}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", eos_token="</s>")


@pytest.mark.parametrize("packing", [False, True])
def test_the_ledger_has_the_rows_that_were_fed(tmp_path, packing):
    lengths = [3 + (5 * i) % 9 for i in range(30)]
    data = datasets.Dataset.from_dict({"input_ids": [[i] * m for i, m in enumerate(lengths)]})
    if packing:  # a row per token, which every packing strategy carries along
        data = data.add_column("row_id", [[i] * m for i, m in enumerate(lengths)])
        data = trl.pack_dataset(data, 16, "wrapped")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    fed = {}

    class Recorder(trl.SFTTrainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            rows = {t for row in inputs["input_ids"].tolist() for t in row if t < 62}
            fed.setdefault(self.state.global_step + 1, []).append(rows)
            return super().training_step(model, inputs, num_items_in_batch)

    arguments = trl.SFTConfig(
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        seed=3,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        dataset_kwargs={"skip_prepare_dataset": packing},
    )
    trainer = Recorder(
        transformers.LlamaForCausalLM(config), arguments, train_dataset=data, processing_class=tokenizer()
    )
    Guard(tmp_path / "guard").attach(trainer)
    trainer.train()
    ledger = Ledger(tmp_path / "guard")
    assert ledger.last_step() == max(fed) >= 4
    row_ids = data["row_id"] if packing else range(30)
    order = replay.order("trl", row_ids=row_ids, packing=packing, per_device_batch=2, accum=2, seed=3)
    for step, batches in fed.items():
        assert [set(micro) for micro in ledger.at(step).micro_batches[0]] == batches
        assert ledger.at(step).rows == order.at(step).rows
