"""Cross-entropy of a large vocabulary without ever holding all logits.

The logits of a few hundred tokens at a time are turned into their gradient at once, so that they stay in the cache:
at 8,192 entries this is most of what a small model costs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 256


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        loss = torch.zeros((), dtype=torch.float32)
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros(weight.shape, dtype=torch.float32)
        n = len(hidden)
        for at in range(0, n, CHUNK):
            h, y = hidden[at : at + CHUNK], target[at : at + CHUNK]
            logits = h @ weight.T  # (chunk, vocabulary)
            loss -= logits.gather(1, y[:, None]).float().sum()
            # No maximum is subtracted: the logits of a model in training stay far below 88, where exp overflows.
            e = logits.exp_()
            total = e.sum(1, keepdim=True, dtype=torch.float32)
            loss += total.log().sum()
            # softmax = e / total: the division is done on the narrow side of both products.
            d_hidden[at : at + CHUNK] = (e @ weight) / total
            d_weight += e.T @ (h / total).to(h.dtype)
        d_hidden -= weight[target]
        d_weight.index_add_(0, target, hidden.float(), alpha=-1.0)
        ctx.save_for_backward(d_hidden, d_weight)
        ctx.n = n
        return loss / n

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        d_hidden, d_weight = ctx.saved_tensors
        scale = grads[0] / ctx.n
        return d_hidden * scale, (d_weight * scale).to(d_hidden.dtype), None


def head_loss(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy in nats of the targets (n,) under softmax(hidden (n, d) @ weight (vocabulary, d).T)."""
    out: Tensor = _HeadLoss.apply(hidden, weight, target)  # type: ignore[no-untyped-call]
    return out
