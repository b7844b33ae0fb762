"""Guarded runs of the real Trainer in their own process: ``python hf_guarded.py OUT CASES``, alone or by torchrun."""

import json
import os
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from cleanse.guard import Guard, SpikeRules
from cleanse.replaying import SkipList

N = 48
BAD = 29


class Rows(torch.utils.data.Dataset):
    def __init__(self, bad=None):
        self.bad = bad

    def __len__(self):
        return N

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        ids = torch.randint(4, 8, (12,), generator=generator)
        if i == self.bad:
            ids = torch.randint(8, 64, (12,), generator=generator)
        return {"input_ids": ids, "labels": ids.clone(), "unused": "text"}


def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, pad_token_id=0
    )
    return LlamaForCausalLM(config)


class Recorder(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        assert set(inputs) <= {"input_ids", "labels"}, set(inputs)
        fed.append((self.state.global_step + 1, inputs["input_ids"].tolist(), inputs["labels"].tolist()))
        return super().training_step(model, inputs, num_items_in_batch)


def main():
    for case in json.loads(sys.argv[2]):
        fed.clear()
        run(Path(sys.argv[1]) / case["folder"], case)


def run(out, case):
    rank = os.environ.get("RANK", "0")
    out.mkdir(exist_ok=True)
    args = TrainingArguments(
        output_dir=str(out / "trainer"),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=case.get("epochs", 1),
        learning_rate=0.02,
        seed=5,
        save_strategy="steps",
        save_steps=4,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = Recorder(model(), args, train_dataset=Rows(case.get("bad")), eval_dataset=Rows())
    max_loss = 4.0 if rank == case.get("spiking_rank") else None  # the first step has ln(64) = 4.16
    rules = SpikeRules(max_loss=max_loss, max_z=2.0, window=4, min_history=4)  # the run is short, its loss still falls
    guard = Guard(out / "guard", action=case.get("action", "go_on"), rules=rules)
    guard.attach(trainer, SkipList(frozenset(case["skip"])) if case.get("skip") else None)
    start = sum(float(p.detach().double().square().sum()) for p in trainer.model.parameters()) ** 0.5
    trainer.train(resume_from_checkpoint=str(out / "trainer" / case["resume"]) if case.get("resume") else None)
    trainer.evaluate()
    total = {name: float(p.detach().double().sum()) for name, p in trainer.model.named_parameters()}
    (out / f"{case.get('out', 'fed')}.{rank}.json").write_text(
        json.dumps(
            {
                "fed": fed,
                "log": trainer.state.log_history,
                "sums": total,
                "steps": trainer.state.global_step,
                "norm_at_start": start,
            }
        )
    )


fed = []

if __name__ == "__main__":
    main()
