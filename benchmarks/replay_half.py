"""Replay of fp16 runs with a static loss scale of 1,024 that one planted record overflows.

python benchmarks/replay_half.py SHARED/data [--backend torch|mindspore] [--runs 6] [--json FILE]

One unit of the embedded model's first MLP is tuned to one token of one record, so that there alone, in turn, the
product inside the MLP leaves fp16 (forward), or the gradient times the scale does (backward). A training loop in fp16
(torch: autocast; MindSpore: amp "O2") meets it at some step; that step's number is all that the replay is told.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cleanse.probes.model_files import embedded_folder
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

import cleanse

BATCH, STEPS, TOKENS, SCALE = 4, 4, 48, 1024.0
IGNORED = -100
UNIT = 7  # of the first MLP, the one that is tuned
GATE, UP, DOWN = (f"model.layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down"))
_AMPLIFIED = 400.0  # squared it is 2.4 times what fp16 can hold

Weights = dict[str, NDArray[np.float32]]
Row = dict[str, list[int]]
Finite = Callable[[Path, list[Row], float], bool]


def rows_of(data: Path, seed: int) -> list[Row]:
    """Clean records as tokens: the whole text is learnt."""
    tokenizer = Tokenizer.from_file(str(embedded_folder() / "tokenizer.json"))
    lines = (data / "clean" / "sft.jsonl").read_bytes().splitlines()
    made: list[Row] = []
    for i in np.random.default_rng(seed).permutation(len(lines)).tolist():
        record = json.loads(lines[i])
        ids = [1, *tokenizer.encode(f"{record['instruction']}\n{record['output']}").ids][:TOKENS]
        if len(ids) == TOKENS:
            made.append({"input_ids": ids, "labels": [IGNORED, *ids[1:]]})
        if len(made) == BATCH * STEPS:
            break
    return made


def save(weights: Weights, folder: Path) -> None:
    """A checkpoint that both frameworks read."""
    folder.mkdir(exist_ok=True)
    shutil.copy(embedded_folder() / "config.json", folder)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def plant(rows: list[Row], row: int, folder: Path, kind: str, finite: Finite) -> bool:
    """Tunes the unit to the last token of a row; whether that worked: this row overflows, and no other does."""
    weights = {k: v.astype(np.float32) for k, v in load_file(embedded_folder() / "model.safetensors").items()}
    rows[row]["input_ids"][-2] = rows[row]["labels"][-2] = 8000 - row  # a token that is nowhere else
    vectors = mlp_inputs(weights, rows)
    target = vectors[row, -2]
    aligned = target / np.square(target).sum()
    for name in (GATE, UP):
        weights[name] = weights[name].copy()
    weights[DOWN] = weights[DOWN].copy()
    others = [r for i, r in enumerate(rows) if i != row]
    if kind == "forward":
        weights[GATE][UNIT] = weights[UP][UNIT] = _AMPLIFIED * aligned
        weights[DOWN][:, UNIT] = 1e-6
        save(weights, folder)
        return not finite(folder, [rows[row]], 1.0) and finite(folder, others, SCALE)
    # silu(0) is 0 and its slope 1/2: nothing is seen going forward, and the gradient at the gate is what `up` makes it
    weights[GATE][UNIT], weights[UP][UNIT] = 0.0, 1000 * aligned
    direction = np.random.default_rng(row).standard_normal(len(target))
    for power in range(-6, 12):
        weights[DOWN][:, UNIT] = 2.0**power * direction / np.linalg.norm(direction)
        save(weights, folder)
        if not finite(folder, [rows[row]], SCALE / BATCH):
            return finite(folder, [rows[row]], 1.0) and finite(folder, others, SCALE / BATCH)
    return False


def mlp_inputs(weights: Weights, rows: list[Row]) -> NDArray[np.float32]:
    """What enters the first MLP at every token, (rows, tokens, width)."""
    import torch  # noqa: PLC0415 - also beside MindSpore, as the reference
    from cleanse.probes.decoder import load_decoder  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        save(weights, Path(folder) / "model")
        decoder = load_decoder(Path(folder) / "model", torch.float32)
    seen: list[torch.Tensor] = []
    decoder.model.layers[0].mlp.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    with torch.no_grad():
        decoder(torch.tensor([row["input_ids"] for row in rows]))
    found: NDArray[np.float32] = seen[0].numpy()
    return found


def torch_finite(folder: Path, rows: list[Row], scale: float) -> bool:
    """Whether a step in fp16 by torch's own autocast has finite gradients."""
    import torch  # noqa: PLC0415
    from transformers import LlamaForCausalLM  # noqa: PLC0415

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids, labels = (torch.tensor([row[name] for row in rows]) for name in ("input_ids", "labels"))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(input_ids=ids, labels=labels).loss
    (loss * scale).backward()
    return all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def mindspore_finite(folder: Path, rows: list[Row], scale: float) -> bool:
    """The same by MindSpore's amp, level O2, and its own check."""
    import mindspore as ms  # noqa: PLC0415
    from cleanse.probes.mindspore_decoder import Decoder, DecoderLoss, half_precision, tables  # noqa: PLC0415
    from cleanse.probes.mindspore_models import load_model  # noqa: PLC0415
    from mindspore import Tensor, amp  # noqa: PLC0415

    loaded = load_model(str(folder))
    model = DecoderLoss(half_precision(Decoder(loaded.config, loaded.weights)))
    ids = np.array([row["input_ids"] for row in rows], np.int32)
    targets = np.roll(ids, -1, 1)
    share = np.full(ids.shape, 1 / (ids.size - len(ids)), np.float32)
    share[:, -1] = 0
    inputs = (Tensor(ids), Tensor(targets), Tensor(share), *tables(loaded.config, ids.shape[1]))
    factor = Tensor(scale, ms.float32)
    gradient = ms.grad(lambda *x: model(*x).sum() * factor, None, list(model.trainable_params()))
    return bool(amp.all_finite(gradient(*inputs)).asnumpy())


def run(data: Path, backend: str, seed: int, work: Path) -> dict[str, Any] | None:
    """One run and its replay; None where nothing could be planted."""
    finite = torch_finite if backend == "torch" else mindspore_finite
    kind = ("forward", "backward")[seed % 2]
    rows = rows_of(data, seed)
    row = int(np.random.default_rng(seed).integers(BATCH, BATCH * STEPS))
    model = work / "model"
    if not plant(rows, row, model, kind, finite):
        return None
    batches = [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]
    step = next((i + 1 for i, batch in enumerate(batches) if not finite(model, batch, SCALE)), None)
    if step is None:
        return None
    file = work / "rows.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    found = cleanse.replay(
        file,
        step=step,
        trainer="sequential",
        settings={"per_device_batch": BATCH},
        model=str(model),
        backend=backend,
        device="cpu",
        dtype="fp16",
        loss_scale=SCALE,
    )
    safe, batch = found.safe_loss_scale, batches[step - 1]
    return {
        "seed": seed,
        "kind": kind,
        "step": step,
        "row": row,
        "diagnosis": found.kind,
        "culprits": list(found.culprits),
        "right": found.kind in ("precision", "data") and found.culprits == (row,),
        "safe_loss_scale": safe,
        "finite_at_safe_scale": safe is not None and math.isfinite(safe) and finite(model, batch, safe),
        "powers_to_spare": next(
            (p for p in range(8) if safe and not finite(model, batch, safe * 2.0 ** (p + 1))), None
        ),
        "bf16_finite": found.bf16_finite,
        "evidence": found.evidence,
        "remedy": found.diagnosis.remedy,
    }


def main() -> None:
    """Runs until enough were planted; prints each and the sums."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--backend", choices=["torch", "mindspore"], default="torch")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found: list[dict[str, Any]] = []
    for seed in range(4 * asked.runs):
        with tempfile.TemporaryDirectory() as work:
            one = run(asked.data, asked.backend, seed, Path(work))
        if one is not None:
            found.append(one)
            print(json.dumps(one), file=sys.stderr, flush=True)
        if len(found) == asked.runs:
            break
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))
    backward = [one for one in found if one["kind"] == "backward"]
    print(f"{asked.backend}: {sum(one['right'] for one in found)} of {len(found)} name the row")
    print(
        f"safe scale: finite in {sum(one['finite_at_safe_scale'] for one in backward)} of {len(backward)} backward runs"
    )


if __name__ == "__main__":
    main()
