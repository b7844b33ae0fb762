"""Which modules are norms with a gain, and what they multiply it with."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

#: How far a module's output may be from what the formula predicts (float32; coarser types get more).
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4, torch.bfloat16: 3e-2, torch.float16: 3e-3}


def normalised_input(module: nn.Module, x: Tensor, out: Tensor, *, check: bool = True) -> Tensor | None:
    """X / rms(x) or (x - mean) / std over the last axis, before gain and bias; None where the module is neither.

    Decided by the numbers, not the name: gain times the result (or, as Gemma has it, 1 + gain) must be the module's
    output. Without `check` this is taken as known.
    """
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 1 or x.shape != out.shape or weight.shape[0] != x.shape[-1]:
        return None
    if isinstance(module, nn.LayerNorm):
        return functional.layer_norm(x.float(), module.normalized_shape, None, None, module.eps)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if getattr(module, "bias", None) is not None or not isinstance(eps, float):
        return None
    x32 = x.float()
    result = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)
    if not check:
        return result
    gain, measured = weight.float(), out.float()
    limit = TOLERANCE.get(out.dtype, 1e-4) * (measured.abs().amax() + 1e-6)
    for candidate in (gain, 1 + gain):
        # A record that overflowed compares as false with anything; the others decide.
        off = (result * candidate - measured).abs()
        if bool((off.nan_to_num(0.0, 0.0, 0.0) <= limit.nan_to_num(torch.inf)).all()):
            return result
    return None
