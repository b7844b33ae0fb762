"""A step of a run replayed with torch: its gradient as the trainer had it, and what 16 bits do to each of its records.

One record at a time: a step that did not fit on one device at once still fits here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from .features import FLOAT16_MAX
from .torch_anatomy import model_logits
from .torch_oracle import requiring_grad
from .types import HalfMeasures, ProbeRecord, StepMeasures

HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def step_gradient(
    model: nn.Module,
    trainable: Mapping[str, nn.Parameter],
    records: Sequence[ProbeRecord],
    weights: Sequence[float],
    *,
    loss_scale: float = 1.0,
    dtype: str = "float32",
) -> StepMeasures:
    """Loss and unscaled gradient norm of the sum of weight times mean loss; `dtype` as in `half_pass`.

    Memory: one gradient, and one record's pass.
    """
    device = next(model.parameters()).device
    half = HALVES.get(dtype)
    loss = 0.0
    with requiring_grad(trainable) as params, _gradients_of(params):
        for record, weight in zip(records, weights, strict=True):
            if not record.n_tokens or not weight:
                continue
            with torch.autocast(device.type, dtype=half, enabled=half is not None):
                part = _mean_loss(model, record, device) * weight
            (part * loss_scale).backward()  # type: ignore[no-untyped-call]
            loss += float(part.detach())
        norm = _norm(params, loss_scale)
    return StepMeasures(loss=loss, grad_norm=norm)


def half_pass(
    model: nn.Module,
    trainable: Mapping[str, nn.Parameter],
    record: ProbeRecord,
    *,
    weight: float,
    loss_scale: float,
    dtype: str,
) -> HalfMeasures:
    """One record, forward and backward, with every module's largest numbers watched.

    Args:
        model: In float32 (or what its weights are kept in).
        trainable: The parameters the gradient is of.
        record: With at least one supervised token.
        weight: What the trainer multiplied the record's mean loss with.
        loss_scale: What it multiplied the loss with before the backward pass.
        dtype: "float16" or "bfloat16": under autocast, as trainers run mixed precision; "float32": only watched.
    """
    device = next(model.parameters()).device
    watch = _Watch(model, loss_scale)
    half = HALVES.get(dtype)
    with requiring_grad(trainable) as params, _gradients_of(params), watch.open():
        with torch.autocast(device.type, dtype=half, enabled=half is not None):
            loss = _mean_loss(model, record, device)
        (loss * (weight * loss_scale)).backward()  # type: ignore[no-untyped-call]
        watch.look_at_weights()
        norm = _norm(params, weight * loss_scale)
    return HalfMeasures(
        loss=float(loss.detach()),
        grad_norm=norm,
        activation_amax=watch.activation,
        grad_amax=watch.gradient / loss_scale,
        forward_place=watch.forward_place,
        backward_place=watch.backward_place,
    )


def _mean_loss(model: nn.Module, record: ProbeRecord, device: torch.device) -> Tensor:
    ids = torch.from_numpy(record.ids).to(device)
    wanted = torch.from_numpy(record.supervised[1:]).to(device)
    logits = model_logits(model, ids[None])[0, :-1]
    return functional.cross_entropy(logits[wanted].float(), ids[1:][wanted])


def _norm(params: Sequence[nn.Parameter], factor: float) -> float:
    """L2 norm of the gradients over a factor; not finite where one of them is not."""
    squares = [float((p.grad.double() / factor).square().sum()) for p in params if p.grad is not None]
    return math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan


@contextmanager
def _gradients_of(params: Sequence[nn.Parameter]) -> Iterator[None]:
    """Gradients are accumulated from nothing inside, and gone afterwards."""
    for p in params:
        p.grad = None
    try:
        with torch.enable_grad():
            yield
    finally:
        for p in params:
            p.grad = None


@dataclass
class _Watch:
    """Running maxima, and where float16 was left first, in the order of computation."""

    model: nn.Module
    loss_scale: float
    activation: float = 0.0
    gradient: float = 0.0  # scaled
    forward_place: str = ""
    backward_place: str = ""
    _handles: list[RemovableHandle] = field(default_factory=list)

    @contextmanager
    def open(self) -> Iterator[None]:
        for name, module in self.model.named_modules():
            if not any(True for _ in module.children()):
                self._handles.append(module.register_forward_hook(self._hook(name)))
        try:
            yield
        finally:
            for handle in self._handles:
                handle.remove()

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[object, ...], object], None]:
        def on_module(_module: nn.Module, args: tuple[object, ...], out: object) -> None:
            for x, side in [*((x, "the input of ") for x in args), (out, "")]:
                if isinstance(x, Tensor) and x.is_floating_point() and x.numel():
                    self._forward(_amax(x), f"{side}{name}")
            if isinstance(out, Tensor) and out.requires_grad:
                out.register_hook(lambda grad: self._backward(_amax(grad), name))  # type: ignore[no-untyped-call]

        return on_module

    def _forward(self, size: float, place: str) -> None:
        self.activation = max(self.activation, size)
        if size > FLOAT16_MAX and not self.forward_place:
            self.forward_place = place

    def _backward(self, size: float, place: str) -> None:
        self.gradient = max(self.gradient, size)
        if size > FLOAT16_MAX and not self.backward_place:
            self.backward_place = place

    def look_at_weights(self) -> None:
        """Gradients of linear layers' weights: in mixed precision they are 16 bits wide before they are cast."""
        for name, module in self.model.named_modules():
            weight = getattr(module, "weight", None)
            if isinstance(module, nn.Linear) and isinstance(weight, Tensor) and weight.grad is not None:
                self._backward(_amax(weight.grad), f"the weight of {name}")


def _amax(x: Tensor) -> float:
    """Largest absolute value; infinity where one is NaN."""
    size = float(x.detach().abs().max())
    return math.inf if math.isnan(size) else size
