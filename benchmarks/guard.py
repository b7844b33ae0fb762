"""What the guard costs a step of the real Hugging Face Trainer, as a share of the step's CPU time.

python benchmarks/guard.py [--steps 20] [--rows 4] [--tokens 128]

The guard's own code is timed inside a guarded run: rows taken off the batch and written down, norms, ledger, rules. The
time of the step around it is the same run's. (Two runs beside each other differ by more than the guard takes.)
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cleanse.probes.model_files import embedded_folder
from transformers import AutoModelForCausalLM, PrinterCallback, Trainer, TrainingArguments

import cleanse
from cleanse.guard import huggingface

spent = {"guard": 0.0}


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random tokens."""

    def __init__(self, count: int, tokens: int) -> None:
        self.ids = torch.randint(2, 8000, (count, tokens), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def timed(owner: Any, name: str, without: tuple[Any, str] | None = None) -> None:
    """Adds a method's CPU time to the guard's, less that of a method of the trainer's own that it calls."""
    plain: Callable[..., Any] = getattr(owner, name)
    inner = [0.0]
    if without is not None:
        original: Callable[..., Any] = getattr(*without)

        def counted(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return original(*args, **kwargs)
            finally:
                inner[0] += time.thread_time() - start

        setattr(without[0], without[1], counted)

    def measured(*args: Any, **kwargs: Any) -> Any:
        start, inner[0] = time.thread_time(), 0.0
        try:
            return plain(*args, **kwargs)
        finally:
            spent["guard"] += time.thread_time() - start - inner[0]

    setattr(owner, name, measured)


def main() -> None:
    """One guarded run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    model: Any = AutoModelForCausalLM.from_pretrained(embedded_folder(), dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=asked.rows,
            max_steps=asked.steps,
            save_strategy="no",
            logging_steps=1,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        trainer = Trainer(model, arguments, train_dataset=Rows(asked.steps * asked.rows, asked.tokens))
        trainer.remove_callback(PrinterCallback)
        cleanse.Guard(Path(folder) / "guard").attach(trainer)
        watch = next(c for c in trainer.callback_handler.callbacks if type(c).__module__ == huggingface.__name__)
        timed(trainer, "training_step", without=(watch, "_train"))
        timed(watch, "on_pre_optimizer_step")
        timed(huggingface.CarryRows, "__call__")  # with the collator inside it: counted too
        start = time.thread_time()
        trainer.train()
        whole = time.thread_time() - start
    each = whole / asked.steps * 1000
    print(f"{asked.steps} steps of {asked.rows} x {asked.tokens} tokens: {each:.1f} ms of CPU a step")
    print(f"guard: {spent['guard'] / asked.steps * 1000:.2f} ms of it, {spent['guard'] / whole:.2%}")


if __name__ == "__main__":
    main()
