"""A step of a run replayed with MindSpore: its gradient as the trainer had it, and its records in half precision.

One record at a time, operator by operator: a step that did not fit on one device at once still fits here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor
from numpy.typing import NDArray

from .features import FLOAT16_MAX
from .mindspore_decoder import Decoder, DecoderLoss, half_precision, tables
from .mindspore_models import LoadedModel
from .mindspore_shapes import fill
from .types import ProbeRecord, StepMeasures

Gradients = list[NDArray[np.float32]]


def step_gradient(
    loaded: LoadedModel,
    records: Sequence[ProbeRecord],
    weights: Sequence[float],
    *,
    loss_scale: float = 1.0,
    half: bool = False,
) -> StepMeasures:
    """Loss and unscaled gradient norm of the sum of weight times mean loss; ``half`` as in `half_step`.

    Memory: one gradient, and one record's pass.
    """
    decoder = Decoder(loaded.config, loaded.weights)
    model = DecoderLoss(half_precision(decoder) if half else decoder)
    total: Gradients | None = None
    loss = 0.0
    for record, weight in zip(records, weights, strict=True):
        if not record.n_tokens or not weight:
            continue
        value, gradients = _pass(model, loaded, record, weight * loss_scale)
        loss += weight * value
        total = gradients if total is None else [a + b for a, b in zip(total, gradients, strict=True)]
    return StepMeasures(loss=loss, grad_norm=_norm(total or []) / loss_scale)


def half_step(loaded: LoadedModel, record: ProbeRecord, *, weight: float, loss_scale: float) -> tuple[float, float]:
    """Loss and unscaled gradient norm of one record's mean loss in fp16 with float32 norms ("O2")."""
    model = DecoderLoss(half_precision(Decoder(loaded.config, loaded.weights)))
    factor = weight * loss_scale
    value, gradients = _pass(model, loaded, record, factor)
    return value, _norm([g / factor for g in gradients])


def first_over(places: Sequence[str], sizes: NDArray[np.float32]) -> str:
    """The first place whose largest number float16 cannot hold; empty for none."""
    over = np.flatnonzero(~(sizes <= FLOAT16_MAX))
    return places[int(over[0])] if len(over) else ""


def _pass(model: Any, loaded: LoadedModel, record: ProbeRecord, factor: float) -> tuple[float, Gradients]:
    """Mean loss, and the gradient of it times a factor."""
    arrays = fill([record], 1, len(record.ids))
    inputs = (Tensor(arrays.ids), Tensor(arrays.targets), Tensor(arrays.scale), *tables(loaded.config, len(record.ids)))
    scale = Tensor(factor, ms.float32)

    def forward(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        value = model(*arguments).sum()
        return value * scale, value

    (_, value), gradients = ms.value_and_grad(forward, None, list(model.trainable_params()), has_aux=True)(*inputs)
    return float(value.asnumpy()), [g.astype(ms.float32).asnumpy() for g in gradients]


def _norm(gradients: Gradients) -> float:
    total = math.fsum(float(np.square(g, dtype=np.float64).sum()) for g in gradients)
    return math.sqrt(total) if total == total else math.nan  # noqa: PLR0124 - NaN
