"""A guarded run of the real Trainer that is killed in the middle of a step: ``python hf_killed.py DATA OUT CASE``.

The step whose batch supervises the damaged tokens ends in SIGKILL, as a node that runs out of memory does.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from cleanse.guard import Guard
from cleanse.replaying import SkipList


class Rows(torch.utils.data.Dataset):
    def __init__(self, path):
        self.rows = [json.loads(line) for line in Path(path).read_text().splitlines()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return dict(self.rows[i])


def collate(rows):
    return {k: torch.tensor([row[k] for row in rows]) for k in ("input_ids", "labels")}


class Fragile(Trainer):
    fed: list
    deadly: int
    log_to: Path

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.fed.append((self.state.global_step + 1, inputs["input_ids"][:, 1].tolist()))
        self.log_to.write_text(json.dumps(self.fed))
        if bool((inputs["labels"] == self.deadly).any()):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(model, inputs, num_items_in_batch)


def main():
    case = json.loads(sys.argv[3])
    out = Path(sys.argv[2])
    args = TrainingArguments(
        output_dir=str(out / "trainer"),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        learning_rate=1e-4,
        seed=3,
        save_strategy="steps",
        save_steps=2,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    model = AutoModelForCausalLM.from_pretrained(case["model"], dtype=torch.float32)
    trainer = Fragile(model, args, train_dataset=Rows(sys.argv[1]), data_collator=collate)
    trainer.fed, trainer.deadly, trainer.log_to = [], case["deadly"], out / case["fed"]
    guard = Guard(out / "guard")
    guard.attach(trainer, SkipList.read(case["skip"]) if case.get("skip") else None)
    trainer.train(resume_from_checkpoint=case.get("resume"))
    (out / "done.json").write_text(json.dumps(trainer.state.global_step))


if __name__ == "__main__":
    main()
