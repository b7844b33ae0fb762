"""Exact gradient norms against one plain training step, vmap and Opacus: same model, same batch, one run.

    python benchmarks/probe.py                        # the embedded model, 16 records of 256 tokens
    python benchmarks/probe.py --model smollm2 --records 4 --tokens 128 --json out.json

Times are CPU seconds of this process on a CPU and wall seconds on any other device; every method is run in turn,
`--repeats` times, and the median counts. The error is against the batch-1 loop with float64 accumulation.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cleanse.probes.torch_anatomy import model_logits
from cleanse.probes.torch_backend import TorchProbe, open_probe
from cleanse.probes.torch_oracle import loop_norm, requiring_grad
from cleanse.probes.types import ProbeOptions, ProbeRecord
from torch import Tensor
from torch.nn import functional

Norms = Callable[[], "list[float] | None"]


def random_records(count: int, tokens: int, vocabulary: int, seed: int = 0) -> list[ProbeRecord]:
    """Records of random ids: what is timed does not depend on the text."""
    rng = np.random.default_rng(seed)
    mask = np.ones(tokens, dtype=np.bool_)
    return [ProbeRecord(rng.integers(2, vocabulary, tokens), mask, n_bytes=4 * tokens) for _ in range(count)]


def mean_losses(logits: Tensor, ids: Tensor) -> Tensor:
    """Mean loss of every record (records,)."""
    flat = functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none")
    return flat.view(len(ids), -1).mean(1)


def plain_step(probe: TorchProbe, ids: Tensor) -> None:
    """Forward and backward of the batch's mean loss: what a training step costs without the optimizer."""
    with requiring_grad(probe.trainable) as params, torch.enable_grad():
        torch.autograd.grad(mean_losses(model_logits(probe.model, ids), ids).mean(), params)


def vmap_norms(probe: TorchProbe, ids: Tensor, chunk: int) -> list[float]:
    """Per-sample gradients of the whole model by torch.func, `chunk` records at a time."""
    from torch.func import functional_call, grad, vmap  # noqa: PLC0415 - one method of several

    params = {name: p.detach() for name, p in probe.model.named_parameters()}

    def loss(p: dict[str, Tensor], one: Tensor) -> Tensor:
        out = functional_call(probe.model, p, (one[None],))
        return mean_losses(out if isinstance(out, Tensor) else out.logits, one[None])[0]

    norms: list[float] = []
    for part in torch.split(ids, chunk):
        grads = vmap(grad(loss), in_dims=(None, 0))(params, part)
        total = sum(g.flatten(1).double().square().sum(1) for g in grads.values())
        norms += total.sqrt().tolist()
    return norms


def opacus_norms(probe: TorchProbe, ids: Tensor) -> list[float]:
    """Per-sample gradients by Opacus' hooks."""
    from opacus import GradSampleModule  # noqa: PLC0415 - one method of several

    with requiring_grad(probe.trainable) as params, torch.enable_grad():
        # Opacus keeps activations in training mode only; none of these models has dropout.
        wrapped = GradSampleModule(probe.model.train(), batch_first=True, loss_reduction="sum", strict=False)
        try:
            out: Any = wrapped(ids)
            mean_losses(out if isinstance(out, Tensor) else out.logits, ids).sum().backward()  # type: ignore[no-untyped-call]
            total = sum(p.grad_sample.flatten(1).double().square().sum(1) for p in params)
            norms: list[float] = total.sqrt().tolist()
        finally:
            for p in params:
                p.grad = None
                p.grad_sample = None
            wrapped.remove_hooks()
            probe.model.eval()
    return norms


def methods(probe: TorchProbe, records: list[ProbeRecord], ids: Tensor, vmap_chunk: int) -> dict[str, Norms]:
    """Everything that is compared, by name; each returns the norms it found, or None."""

    def ghost(options: ProbeOptions) -> list[float]:
        return [e.grad_norm for e in probe.gradients(records, options)]

    def loop() -> list[float]:
        mask = torch.ones(ids.shape[1], dtype=torch.bool, device=ids.device)
        return [loop_norm(probe.model, probe.trainable, one, mask)[1] for one in ids]

    def losses() -> None:
        probe.losses(records)

    return {
        "plain forward+backward": lambda: plain_step(probe, ids),
        "ghost norms": lambda: ghost(ProbeOptions()),
        "ghost norms and sketch": lambda: ghost(ProbeOptions(sketch=64)),
        "ghost norms and amax": lambda: ghost(ProbeOptions(amax=True)),
        "losses only": losses,
        "loop, batch 1": loop,
        "vmap(grad)": lambda: vmap_norms(probe, ids, vmap_chunk),
        "Opacus per-sample": lambda: opacus_norms(probe, ids),
    }


def clock(device: torch.device) -> float:
    """Seconds: of this process' CPU time on a CPU, of the wall after a synchronisation elsewhere."""
    if device.type == "cpu":
        return time.process_time()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(probe: TorchProbe, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per method: median seconds, ratio to the plain step, largest relative error."""
    records = random_records(args.records, args.tokens, probe.vocabulary)
    ids = torch.from_numpy(np.stack([r.ids for r in records])).to(probe.device)
    todo = methods(probe, records, ids, args.vmap_chunk)
    reference = todo["loop, batch 1"]()
    assert reference is not None
    seconds: dict[str, list[float]] = {name: [] for name in todo}
    errors: dict[str, float] = {}
    failed: dict[str, str] = {}
    for turn in range(args.repeats + 1):
        for name, run in todo.items():
            if name in failed:
                continue
            gc.collect()
            begun = clock(probe.device)
            try:
                found = run()
            except Exception as error:  # noqa: BLE001 - another library's failure is a result
                failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
                continue
            if turn:  # the first turn warms up
                seconds[name].append(clock(probe.device) - begun)
            if found is not None:
                errors[name] = max(abs(a - b) / b for a, b in zip(found, reference, strict=True))
    plain = statistics.median(seconds["plain forward+backward"])
    rows: list[dict[str, Any]] = []
    for name in todo:
        if name in failed:
            rows.append({"method": name, "failed": failed[name]})
            continue
        median = statistics.median(seconds[name])
        rows.append(
            {
                "method": name,
                "seconds": median,
                "ratio": median / plain,
                "records_per_second": args.records / median,
                "max_relative_error": errors.get(name),
            }
        )
    return rows


def main() -> None:
    """Prints a table, and writes JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--records", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--vmap-chunk", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    budget = args.records * args.tokens
    probe = open_probe(args.model, device=args.device, dtype=args.dtype, token_budget=budget)
    rows = measure(probe, args)
    print(
        f"{args.model}: {probe.info.parameters:,} parameters, {probe.info.device}, {probe.info.dtype}, "
        f"{args.records} records of {args.tokens} tokens, {args.threads} threads, torch {torch.__version__}"
    )
    for row in rows:
        if "failed" in row:
            print(f"{row['method']:26} failed: {row['failed']}")
            continue
        error = "" if row["max_relative_error"] is None else f"{row['max_relative_error']:.1e}"
        print(
            f"{row['method']:26} {row['seconds']:8.3f} s  x{row['ratio']:5.2f}  "
            f"{row['records_per_second']:8.1f} records/s  {error}"
        )
    if args.json:
        info = {**probe.info.as_dict(), "torch": torch.__version__, **vars(args), "json": None}
        args.json.write_text(json.dumps({"run": info, "rows": rows}, indent=2, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
