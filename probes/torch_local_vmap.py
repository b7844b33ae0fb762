"""The fallback for a module without a rule: its own parameters' per-sample gradients by vmap over its backward."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap


def own_trainable(module: nn.Module, trainable: set[int]) -> dict[str, Tensor]:
    """The parameters a module holds itself, detached, by name; only those whose id is in `trainable`."""
    return {name: p.detach() for name, p in module.named_parameters(recurse=False) if id(p) in trainable}


@contextmanager
def _without_hooks(module: nn.Module) -> Iterator[None]:
    """Our own hooks must not see the module run a second time."""
    saved = [(m, m._forward_hooks) for m in module.modules()]  # noqa: SLF001 - torch has no public way
    for m, _ in saved:
        m._forward_hooks = OrderedDict()  # noqa: SLF001
    try:
        yield
    finally:
        for m, hooks in saved:
            m._forward_hooks = hooks  # noqa: SLF001


def module_grads(
    module: nn.Module,
    params: Mapping[str, Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    grad_output: Tensor,
) -> dict[str, Tensor]:
    """Per-sample gradients (records, *shape) of `params` in a module that was called with these arguments.

    Tensors whose first axis is that of `grad_output` (records, ...) are taken record by record; all else is shared.
    Raises whatever vmap raises for operations it does not know.
    """
    records = grad_output.shape[0]
    flat = [*args, *kwargs.values()]
    keys = list(kwargs)
    axes = tuple(0 if isinstance(x, Tensor) and x.dim() and x.shape[0] == records else None for x in flat)
    flat = [x.detach() if isinstance(x, Tensor) else x for x in flat]

    def one(grad: Tensor, *values: Any) -> dict[str, Tensor]:
        batched = [v[None] if axis == 0 else v for v, axis in zip(values, axes, strict=True)]
        positional, named = batched[: len(args)], dict(zip(keys, batched[len(args) :], strict=True))

        def forward(p: dict[str, Tensor]) -> Tensor:
            out: Tensor = functional_call(module, p, tuple(positional), named)
            return out[0]

        pull = vjp(forward, dict(params))[1]
        grads: dict[str, Tensor] = pull(grad)[0]
        return grads

    with torch.enable_grad(), _without_hooks(module):
        result: dict[str, Tensor] = vmap(one, in_dims=(0, *axes), randomness="same")(grad_output, *flat)
    return result
