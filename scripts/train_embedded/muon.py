"""Muon for the matrices of the body, AdamW for the embedding and the gains.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) replaces a matrix' momentum by the nearest
orthogonal matrix, found by a Newton-Schulz iteration. At this size it reaches a given loss in about two thirds of the
tokens AdamW needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

#: Coefficients of the quintic iteration x <- a x + (b (x x^T) + c (x x^T)^2) x, from the reference above.
_QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonalise(stack: Tensor, steps: int = 5) -> Tensor:
    """The matrices of a stack (n, rows, columns) with all singular values brought near 1."""
    a, b, c = _QUINTIC
    x = stack.bfloat16()
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; matrices of one shape are treated as one stack.

    A step moves a matrix by lr * sqrt(max(1, rows / columns)) in spectral norm.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override] # a closure has no use here, nor a result
        """One update of every matrix that has a gradient."""
        del closure
        for group in self.param_groups:
            shapes: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(p.shape, []).append((p, p.grad))
            for shape, pairs in shapes.items():
                updates = []
                for p, grad in pairs:
                    state = self.state[p]
                    if not state:
                        state["momentum"] = torch.zeros_like(p)
                    buffer = state["momentum"]
                    buffer.lerp_(grad, 1 - group["momentum"])
                    updates.append(grad.lerp(buffer, group["momentum"]))
                step = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for (p, _), update in zip(pairs, orthogonalise(torch.stack(updates)), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-step)
