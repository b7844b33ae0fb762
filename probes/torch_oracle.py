"""The reference: one record, one backward pass, the norm accumulated in float64. Slow, and right for any model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from .torch_anatomy import model_logits


@contextmanager
def requiring_grad(trainable: Mapping[str, nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Lets the given parameters require gradients for a while."""
    params = list(trainable.values())
    before = [p.requires_grad for p in params]
    for p in params:
        p.requires_grad = True
    try:
        yield params
    finally:
        for p, was in zip(params, before, strict=True):
            p.requires_grad_(was)


def loop_norm(
    model: nn.Module, trainable: Mapping[str, nn.Parameter], ids: Tensor, supervised: Tensor
) -> tuple[Tensor, float]:
    """Token losses (targets,) and gradient norm of one record.

    Args:
        model: Any causal language model.
        trainable: The parameters the norm is over.
        ids: (tokens,).
        supervised: (tokens,), bool; at least one True behind the first.
    """
    with requiring_grad(trainable) as params, torch.enable_grad():
        logits = model_logits(model, ids[None])[0, :-1]
        wanted = supervised[1:]
        losses = functional.cross_entropy(logits[wanted].float(), ids[1:][wanted], reduction="none")
        grads = torch.autograd.grad(losses.mean(), params, allow_unused=True)
    total = sum(float(g.double().square().sum()) for g in grads if g is not None)
    return losses.detach(), total**0.5
