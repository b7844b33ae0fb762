"""The largest numbers of a pass, per record: what half precision would have had to hold.

Inputs and outputs of every leaf module are watched, for the product inside a gated MLP is seen by no output but by the
input of the projection behind it; and the gradients of the outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


@dataclass
class AmaxHooks:
    """Running maxima (records,) of activations and output gradients at real tokens."""

    root: nn.Module
    activation: Tensor = field(init=False)
    grad: Tensor = field(init=False)

    def open(self) -> None:
        """Puts a hook on every leaf module."""
        leaves = [m for m in self.root.modules() if not any(True for _ in m.children())]
        self._handles: list[RemovableHandle] = [m.register_forward_hook(self._on_module) for m in leaves]

    def close(self) -> None:
        """Removes all hooks."""
        for handle in self._handles:
            handle.remove()

    def begin(self, lengths: Tensor, tokens: int) -> None:
        """Empties the maxima before a batch of records of these lengths (records,), padded to `tokens`."""
        self._real = torch.arange(tokens, device=lengths.device)[None] < lengths[:, None]
        self.activation = torch.zeros(len(lengths), device=lengths.device)
        self.grad = torch.zeros(len(lengths), device=lengths.device)

    def _amax(self, x: Any) -> Tensor | None:
        if not isinstance(x, Tensor) or not x.is_floating_point() or not x.dim() or x.shape[0] != len(self.activation):
            return None
        size: Tensor = x.detach().abs()
        if size.dim() > 2 and size.shape[1] == self._real.shape[1]:  # noqa: PLR2004 - records, tokens, ...
            return size.flatten(2).amax(2).float().masked_fill(~self._real, 0).amax(1)
        return size.flatten(1).amax(1).float()

    def _on_module(self, _module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        for x in (*args, out):
            found = self._amax(x)
            if found is not None:
                self.activation = torch.maximum(self.activation, found)
        if isinstance(out, Tensor) and out.requires_grad:
            out.register_hook(self._on_grad)  # type: ignore[no-untyped-call]

    def _on_grad(self, grad: Tensor) -> None:
        found = self._amax(grad)
        if found is not None:
            self.grad = torch.maximum(self.grad, found)
