"""Replay, end to end: real training runs that spike, and what ``cleanse replay`` says about them.

python benchmarks/replay.py SHARED/data [--planted 30] [--controls 20] [--json FILE]

* planted: the Hugging Face Trainer on the embedded model, one damaged record among clean ones. Runs whose largest loss
  or gradient norm lies at another step are not counted. From seed and step alone: is the record first?
* controls: the same without a damaged record, the learning rate 100 times too high.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cleanse.probes.model_files import embedded_folder
from cleanse.probes.torch_backend import open_probe
from cleanse.probes.types import ProbeRecord
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging as hf_logging

import cleanse

ROWS, BATCH, ACCUM, MAX_LENGTH, RATE = 48, 2, 2, 128, 3e-4
IGNORED = -100


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Lines of JSON, encoded as a user would: BOS, prompt and answer on lines of their own, loss on the answer."""

    def __init__(self, lines: list[bytes]) -> None:
        self.tokenizer = Tokenizer.from_file(str(embedded_folder() / "tokenizer.json"))
        self.lines = lines

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, i: int) -> dict[str, Any]:
        record = json.loads(self.lines[i].decode("utf-8", "replace"))
        parts = [record["instruction"], *([record["input"]] if record.get("input") else []), record["output"]]
        text = "\n".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        prompt = len(text) - len(parts[-1])
        ids = [1, *encoding.ids][:MAX_LENGTH]
        ends = [0, *(end for _, end in encoding.offsets)]
        labels = [x if ends[k] > prompt else IGNORED for k, x in enumerate(ids)]
        return {"input_ids": ids, "labels": labels}


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Pads on the right."""
    width = max(len(row["input_ids"]) for row in rows)
    pads = {"input_ids": 0, "labels": IGNORED}
    return {k: torch.tensor([row[k] + [pad] * (width - len(row[k])) for row in rows]) for k, pad in pads.items()}


def train(lines: list[bytes], folder: Path, seed: int, rate: float) -> list[dict[str, float]]:
    """One epoch by the real Trainer, a checkpoint after every step. Gives the log."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUM,
        num_train_epochs=1,
        learning_rate=rate,
        seed=seed,
        save_strategy="steps",
        save_steps=1,
        save_only_model=True,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    model: Any = AutoModelForCausalLM.from_pretrained(embedded_folder(), dtype=torch.float32)
    model.save_pretrained(folder / "checkpoint-0")
    trainer = Trainer(model, arguments, train_dataset=Rows(lines), data_collator=collate)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [e for e in trainer.state.log_history if "grad_norm" in e]


def replayed(data: Path, folder: Path, seed: int, step: int, **more: Any) -> cleanse.ReplayResult:
    """What a user would type: the data, the step, the seed, and the checkpoint before it."""
    return cleanse.replay(
        data,
        step=step,
        trainer="hf",
        settings={"seed": seed, "per_device_batch": BATCH, "accum": ACCUM},
        model=str(folder / f"checkpoint-{step - 1}"),
        tokenizer=str(embedded_folder()),
        max_length=MAX_LENGTH,
        device="cpu",
        **more,
    )


def load(data: Path) -> tuple[list[bytes], dict[str, list[bytes]]]:
    """Clean lines, and damaged ones by kind, of the dirty instruction set."""
    lines = (data / "dirty" / "sft_dirty.jsonl").read_bytes().splitlines()
    labels = json.loads((data / "dirty" / "sft_dirty.labels.json").read_text())["labels"]
    damaged: dict[str, list[bytes]] = {}
    for row, kind in labels.items():
        damaged.setdefault(kind, []).append(lines[int(row)])
    clean = [line for i, line in enumerate(lines) if str(i) not in labels]
    whole = ("base64_blob", "random_printable", "repeat_token", "over_long_run")  # damaged from the first word on
    for kind, records in damaged.items():  # elsewhere the damage must not lie behind the cut
        rows = Rows(records)
        damaged[kind] = [r for i, r in enumerate(records) if _reaches_the_loss(rows[i], whole=kind in whole)]
    return [line for line in clean if json.loads(line)["output"].strip()], {k: v for k, v in damaged.items() if v}


def _reaches_the_loss(row: dict[str, Any], *, whole: bool) -> bool:
    """Whether the damage is before the cut: the record is not cut, or all of its answer is damage and some is left."""
    learnt = sum(label != IGNORED for label in row["labels"])
    return len(row["input_ids"]) < MAX_LENGTH or (whole and learnt >= MAX_LENGTH // 8)


def largest_step(log: list[dict[str, float]], name: str) -> int:
    """The step at which a figure was largest in the run."""
    return int(max(log, key=lambda entry: entry[name])["step"])


def planted(data: Path, count: int, work: Path) -> Iterator[dict[str, Any]]:
    """Runs with one damaged record, kinds in turn, until ``count`` of them spiked at its step."""
    clean, damaged = load(data)
    kinds = sorted(damaged)
    passed_over: Counter[str] = Counter()
    probe = open_probe(device="cpu", dtype="float32")
    done = seed = 0
    while done < count and seed < 20 * count + 20:
        seed += 1
        kind = kinds[seed % len(kinds)]
        draw = random.Random(seed)
        lines = draw.sample(clean, ROWS)
        row = draw.randrange(ROWS)
        lines[row] = draw.choice(damaged[kind])
        file = work / "data.jsonl"
        file.write_bytes(b"".join(line + b"\n" for line in lines))
        order = cleanse.order("hf", ROWS, seed=seed, per_device_batch=BATCH, accum=ACCUM)
        step = next(s for s in range(1, order.steps_per_epoch + 1) if row in order.at(s).rows)
        if not _may_spike(probe, lines, order, step, kind):
            passed_over[kind] += 1
            continue
        log = train(lines, work / "run", seed, RATE)
        largest = {largest_step(log, name) for name in ("loss", "grad_norm")}
        if step not in largest:
            passed_over[kind] += 1
            continue
        found = replayed(file, work / "run", seed, step)
        logged = next(e for e in log if e["step"] == step)
        norm = found.measured.step.grad_norm or math.nan
        done += 1
        yield {
            "what": "planted",
            "seed": seed,
            "kind": kind,
            "step": step,
            "row": row,
            "first": found.ranking[0].row == row,
            "diagnosis": found.kind,
            "culprits": list(found.culprits),
            "norm_off": abs(norm - logged["grad_norm"]) / logged["grad_norm"],
            "loss_off": abs(found.measured.step.loss - logged["loss"]),
            "ranking": [[r.row, r.score, r.loss_deviation, r.grad_deviation] for r in found.ranking[:3]],
            "evidence": found.evidence,
            "passed_over": dict(passed_over),
        }


def _may_spike(probe: Any, lines: list[bytes], order: Any, step: int, kind: str) -> bool:
    """Whether a run is worth its time: by the losses under the weights it starts from, the record's step is on top.

    Only saves training runs that would not be counted. Repetition shows in gradients, not in losses.
    """
    if kind.startswith("repeat"):
        return True
    encoded = Rows(lines)
    rows = [encoded[i] for i in range(len(lines))]
    records = [ProbeRecord(ids=np.array(r["input_ids"]), supervised=np.array(r["labels"]) != IGNORED) for r in rows]
    found = probe.losses(records)
    means = {}
    for number in range(1, order.steps_per_epoch + 1):
        fed = [found[i] for i in order.at(number).rows if found[i].n_tokens]
        means[number] = sum(e.loss * e.n_tokens for e in fed) / max(1, sum(e.n_tokens for e in fed))
    return means[step] >= max(means.values())


def controls(data: Path, count: int, work: Path) -> Iterator[dict[str, Any]]:
    """Clean runs whose learning rate is 100 times too high: the step with the largest loss is asked about."""
    clean, _ = load(data)
    for seed in range(1000, 1000 + count):
        lines = random.Random(seed).sample(clean, ROWS)
        file = work / "data.jsonl"
        file.write_bytes(b"".join(line + b"\n" for line in lines))
        log = train(lines, work / "run", seed, 100 * RATE)
        worst = max(log, key=lambda e: e["loss"] if math.isfinite(e["loss"]) else math.inf)
        found = replayed(file, work / "run", seed, int(worst["step"]))
        yield {
            "what": "control",
            "seed": seed,
            "step": worst["step"],
            "diagnosis": found.kind,
            "culprits": list(found.culprits),
            "evidence": found.evidence,
        }


def main() -> None:
    """Runs what was asked for, prints a line per run and the sums."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--planted", type=int, default=30)
    parser.add_argument("--controls", type=int, default=20)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    hf_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    warnings.filterwarnings("ignore")
    found = []
    work = Path(tempfile.mkdtemp())
    try:
        for runs in (planted(asked.data, asked.planted, work), controls(asked.data, asked.controls, work)):
            for one in runs:
                found.append(one)
                print(json.dumps(one), file=sys.stderr, flush=True)
                shutil.rmtree(work / "run")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))
    told(found)


def told(found: list[dict[str, Any]]) -> None:
    """The sums."""
    ours = [one for one in found if one["what"] == "planted"]
    alike = [one for one in found if one["what"] == "control"]
    if ours:
        first = sum(one["first"] for one in ours)
        print(f"planted: {first} of {len(ours)} ranked first; {Counter(one['diagnosis'] for one in ours)}")
        print(f"gradient norm off by at most {max(one['norm_off'] for one in ours):.1e} of the logged one")
    if alike:
        accused = sum(bool(one["culprits"]) for one in alike)
        print(f"controls: {Counter(one['diagnosis'] for one in alike)}, {accused} with a row accused")


if __name__ == "__main__":
    main()
