"""Mixed precision: which record makes a run with a loss scale overflow, predicted and replayed.

Predicted from one float32 pass: a record overflows in the forward pass where an activation exceeds 65,504, and in the
backward pass where a gradient times the loss scale does. Replayed with the model as the user trains it, such as one
made by `auto_mixed_precision`, record by record, with MindSpore's own `all_finite`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mindspore as ms
from mindspore import Tensor, amp, nn, ops

from .features import FLOAT16_MAX
from .types import RecordEvidence

#: With a dynamic loss scale nearly every record overflows at the start (2^24): only one that would hold the scale this
#: far below what the batch's median record allows is a finding. Three powers of two: the prediction is exact to one.
DYNAMIC_MARGIN = 8.0


@dataclass(frozen=True, slots=True)
class Overflows:
    """What a loss scale does to a batch.

    Attributes:
        scale: The loss scale, at its current value.
        dynamic: Whether the run lowers it by itself.
        forward: Indices of records with an activation that fp16 cannot hold, at any scale.
        backward: Indices of records whose gradients overflow: at `scale` where it is static; where it is dynamic,
            those that would hold it far below what the others allow.
        median_safe_scale: The largest loss scale that half of the records allow; NaN without records.
        scale_too_high: Whether the static scale is above that: then the scale is to blame, not a record.
    """

    scale: float
    dynamic: bool
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    median_safe_scale: float
    scale_too_high: bool


@dataclass(frozen=True, slots=True)
class Replayed:
    """One record through the model in its own precision."""

    loss: float
    loss_finite: bool
    gradients_finite: bool


def loss_scale(scaler: Any) -> tuple[float, bool]:
    """(value, dynamic) of a number, a StaticLossScaler, DynamicLossScaler or one of the two loss scale managers.

    Raises TypeError for anything else.
    """
    if isinstance(scaler, (int, float)):
        return float(scaler), False
    if isinstance(scaler, (amp.StaticLossScaler, amp.DynamicLossScaler)):
        return float(scaler.scale_value.asnumpy()), isinstance(scaler, amp.DynamicLossScaler)
    if isinstance(scaler, (amp.FixedLossScaleManager, amp.DynamicLossScaleManager)):
        return float(scaler.get_loss_scale()), isinstance(scaler, amp.DynamicLossScaleManager)
    raise TypeError(f"{type(scaler).__name__} is no loss scale: a number, a LossScaler or a LossScaleManager is")


def predict_overflows(evidence: Sequence[RecordEvidence], scaler: Any) -> Overflows:
    """What `scaler` would do to these records, measured with `ProbeOptions(amax=True)`."""
    scale, dynamic = loss_scale(scaler)
    safe = {i: FLOAT16_MAX / one.grad_amax for i, one in enumerate(evidence) if one.grad_amax > 0}
    median = statistics.median(safe.values()) if safe else float("nan")
    limit = min(scale, median / DYNAMIC_MARGIN) if dynamic else scale
    return Overflows(
        scale=scale,
        dynamic=dynamic,
        forward=tuple(i for i, one in enumerate(evidence) if one.activation_amax > FLOAT16_MAX),
        backward=tuple(i for i, value in safe.items() if value < limit),
        median_safe_scale=median,
        scale_too_high=not dynamic and median < scale,
    )


def replay_overflows(
    model: nn.Cell, inputs: Sequence[tuple[Tensor, ...]], scaler: Any, *, loss: Callable[..., Tensor] | None = None
) -> list[Replayed]:
    """Every record's loss and whether its scaled gradients are finite, in the precision `model` computes in.

    Args:
        model: A Cell that returns a loss, for instance after `auto_mixed_precision(model, "O2")`. Its trainable
            parameters are what gradients are taken of; they are not changed.
        inputs: Arguments of the model for each record alone.
        scaler: A number, a loss scaler or a loss scale manager.
        loss: From the model's output to a number, where the model does not return it.

    On Ascend `all_finite` reads the device's own overflow flag.
    """
    scale, _ = loss_scale(scaler)
    weights = list(model.trainable_params())
    factor = Tensor(scale, ms.float32)

    def forward(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        out = model(*arguments)
        value = (out if loss is None else loss(out)).astype(ms.float32).sum()
        return value * factor, value

    gradient = ms.value_and_grad(forward, None, weights, has_aux=True)
    found = []
    for arguments in inputs:
        (_, value), gradients = gradient(*arguments)
        number = float(value.asnumpy())
        found.append(
            Replayed(
                loss=number,
                loss_finite=bool(ops.isfinite(value).asnumpy()),
                gradients_finite=bool(amp.all_finite(gradients).asnumpy()),
            )
        )
    return found
