"""Runs the real Hugging Face Trainer on a tiny model and writes down which rows every rank was fed at every step.

Called in its own process, alone or under torchrun: ``python hf_run.py CASES.json OUT_FOLDER``.
"""

import json
import os
import sys
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments


class Rows(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        return {"row": i, "x": torch.tensor([float(i % 7)]), "input_ids": [0] * (1 + i % 5)}


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Linear(1, 1)

    def forward(self, row, x):
        return {"loss": self.w(x).pow(2).mean()}


def collate(rows):
    return {"row": torch.tensor([r["row"] for r in rows]), "x": torch.stack([r["x"] for r in rows])}


class Recorder(Trainer):
    fed: list

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.fed.append((self.state.global_step + 1, inputs["row"].tolist()))
        return super().training_step(model, inputs, num_items_in_batch)


def run(case, folder, resume_from=None, max_steps=-1, save_at=None):
    args = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=case["batch"],
        gradient_accumulation_steps=case.get("accum", 1),
        num_train_epochs=case.get("epochs", 1),
        seed=case.get("seed", 42),
        data_seed=case.get("data_seed"),
        dataloader_drop_last=case.get("drop_last", False),
        accelerator_config={
            "split_batches": case.get("split", False),
            "even_batches": case.get("even", True),
        },
        train_sampling_strategy=case.get("sampling", "random"),
        ignore_data_skip=case.get("ignore_data_skip", False),
        save_strategy="steps" if save_at else "no",
        save_steps=save_at or 500,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        max_grad_norm=0.0,
    )
    trainer = Recorder(Tiny(), args, train_dataset=Rows(case["n"]), data_collator=collate)
    trainer.fed = []
    trainer.train(resume_from_checkpoint=resume_from)
    return trainer.fed


def main():
    cases = json.loads(Path(sys.argv[1]).read_text())
    out = Path(sys.argv[2])
    rank = int(os.environ.get("RANK", "0"))
    for name, case in cases.items():
        folder = out / name
        resumed = case.get("resumed_at")
        fed = run(case, folder, save_at=resumed)
        if resumed:
            fed = run(case, folder, resume_from=str(folder / f"checkpoint-{resumed}"))
        (out / f"{name}.{rank}.json").write_text(json.dumps(fed))


if __name__ == "__main__":
    main()
