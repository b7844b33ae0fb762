"""Time of exact per-record gradient norms beside one plain forward and backward pass, both in MindSpore's graph mode.

    python benchmarks/probe_mindspore.py [--model embedded] [--records 4] [--tokens 512] [--rounds 7]

The plain step is a training step's cost without the optimizer: the same decoder, the same batch, gradients of all
parameters of the mean loss. Compilation is timed apart. Rounds alternate, and the best of each is compared, in wall
clock and in processor time, so that a busy machine harms both alike.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from cleanse.probes.mindspore_backend import MindSporeProbe, open_probe
from cleanse.probes.mindspore_decoder import Decoder, DecoderLoss, tables
from cleanse.probes.mindspore_shapes import ShapedBatch, fill
from cleanse.probes.types import ProbeOptions, ProbeRecord
from mindspore import Tensor


def plain_step(probe: MindSporeProbe, records: list[ProbeRecord], tokens: int) -> Callable[[], None]:
    """One batched forward and backward pass with all weight gradients, compiled."""
    model = DecoderLoss(Decoder(probe.loaded.config, probe.loaded.weights))
    weights = list(model.trainable_params())
    arrays = fill(records, len(records), tokens)
    inputs = [Tensor(x) for x in (arrays.ids, arrays.targets, arrays.scale)]
    inputs += tables(probe.loaded.config, tokens)

    def forward(*arguments: Tensor) -> Tensor:
        return model(*arguments).mean()

    gradient = ms.value_and_grad(forward, None, weights)

    def step(*arguments: Tensor) -> Any:
        return gradient(*arguments)

    compiled = ms.jit(step)

    def run() -> None:
        loss, gradients = compiled(*inputs)
        loss.asnumpy()
        for one in gradients:
            one.asnumpy()

    return run


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Wall clock and processor seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--records", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    probe = open_probe(options.model, device=options.device, mode="graph")
    rng = np.random.default_rng(0)
    ids = rng.integers(0, probe.vocabulary, (options.records, options.tokens))
    records = [ProbeRecord(ids=row, supervised=np.ones(options.tokens, dtype=np.bool_)) for row in ids]
    batch = ShapedBatch(tuple(range(options.records)), options.records, options.tokens, compiled=True)
    nothing = ProbeOptions()
    passes = probe._for_gradients(nothing)  # noqa: SLF001 - the pass alone, without the evidence around it
    runs: dict[str, Callable[[], object]] = {
        "losses": lambda: probe._measure_losses(batch, records),  # noqa: SLF001
        "exact_norms": lambda: probe._measure_gradients(batch, records, passes, nothing),  # noqa: SLF001
        "plain_step": plain_step(probe, records, options.tokens),
    }
    compile_cpu = {name: round(timed(run)[1], 2) for name, run in runs.items()}
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            rounds[name].append(timed(run))
    best = {name: [min(column) for column in zip(*times, strict=True)] for name, times in rounds.items()}
    print(
        json.dumps(
            {
                **vars(options),
                "mindspore": ms.__version__,
                "compile_cpu_seconds": compile_cpu,
                "best_wall_seconds": {name: round(times[0], 4) for name, times in best.items()},
                "best_cpu_seconds": {name: round(times[1], 4) for name, times in best.items()},
                "norms_over_plain_wall": round(best["exact_norms"][0] / best["plain_step"][0], 3),
                "norms_over_plain_cpu": round(best["exact_norms"][1] / best["plain_step"][1], 3),
            }
        )
    )


if __name__ == "__main__":
    main()
