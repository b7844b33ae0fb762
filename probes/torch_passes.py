"""The two passes over one padded batch: losses alone, or losses with gradient norms."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .sketching import SignVectors
from .torch_amax import AmaxHooks
from .torch_anatomy import Anatomy
from .torch_ghost import GhostHooks
from .torch_head import HeadGradient, HeadSigns, head_gradient, losses_only
from .torch_rules import embedding_norm2
from .types import NAN, Floats, RawMeasures


class Batch(NamedTuple):
    """A padded batch on the model's device; every record has a supervised token behind its first."""

    ids: Tensor  # (records, tokens)
    supervised: Tensor  # (records, tokens), bool
    lengths: Tensor  # (records,)


@torch.inference_mode()
def loss_pass(anatomy: Anatomy, batch: Batch) -> list[RawMeasures]:
    """Token losses of every record."""
    hidden = anatomy.hidden(batch.ids)
    losses = losses_only(hidden, anatomy.head, batch.ids, batch.supervised)
    return [RawMeasures(token_losses=x.cpu().numpy()) for x in losses]


def ghost_pass(
    anatomy: Anatomy,
    hooks: GhostHooks,
    batch: Batch,
    *,
    signs: SignVectors | None = None,
    amax: AmaxHooks | None = None,
) -> list[RawMeasures]:
    """Token losses and exact gradient norms of every record, by one backward pass over the batch.

    `hooks` are open; `signs` are those the hooks have. Raises NoGhostRuleError where a module is met without a rule.
    """
    records, tokens = batch.ids.shape
    hooks.begin(records, batch.ids.device)
    if amax is not None:
        amax.begin(batch.lengths, tokens)
    with torch.enable_grad():
        hidden = anatomy.hidden(batch.ids)
    back = torch.zeros_like(hidden)
    heads: list[HeadGradient] = []
    head_signs = _head_signs(anatomy, signs, hidden.device)
    with torch.no_grad():
        for i in range(records):
            wanted = batch.supervised[i, 1:].nonzero()[:, 0]
            own = batch.ids[i, : batch.lengths[i]]
            head = head_gradient(
                hidden[i, wanted], batch.ids[i, wanted + 1], own, anatomy, head_signs, amax=amax is not None
            )
            back[i, wanted] = head.back.to(back.dtype)
            heads.append(head)
    hidden.backward(back)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        norm2 = hooks.norm2 + torch.stack([head.norm2 for head in heads]).to(hooks.norm2)
        norm2 = norm2 + _embedding_part(anatomy, hooks, batch, heads)
        norms = norm2.clamp_min(0).sqrt().cpu().numpy()
        sketches = _sketches(anatomy, hooks, batch, heads, signs)
    activations, grads = _largest(amax, heads)
    return [
        RawMeasures(
            token_losses=heads[i].losses.cpu().numpy(),
            grad_norm=float(norms[i]),
            sketch=None if sketches is None else sketches[i],
            activation_amax=activations[i],
            grad_amax=grads[i],
        )
        for i in range(records)
    ]


def _largest(amax: AmaxHooks | None, heads: list[HeadGradient]) -> tuple[list[float], list[float]]:
    """Activation and gradient maxima of every record, the head's included; NaN where nobody asked."""
    if amax is None:
        return [NAN] * len(heads), [NAN] * len(heads)
    logits = torch.stack([head.logit_amax for head in heads if head.logit_amax is not None])
    grads = torch.stack([head.grad_amax for head in heads if head.grad_amax is not None])
    activation: list[float] = torch.maximum(logits, amax.activation).tolist()
    gradient: list[float] = torch.maximum(grads, amax.grad).tolist()
    return activation, gradient


def _table_gradient(anatomy: Anatomy, hooks: GhostHooks, ids: Tensor) -> Tensor:
    """Gradients at the embedding's rows, (records, tokens, width)."""
    grad = hooks.embedded.grad
    assert grad is not None
    grad = grad.float() * anatomy.embedding_scale
    padding = anatomy.embedding.padding_idx
    # torch gives that row no gradient, also where a record really contains the token.
    return grad if padding is None else grad.masked_fill((ids == padding)[..., None], 0)


def _embedding_part(anatomy: Anatomy, hooks: GhostHooks, batch: Batch, heads: list[HeadGradient]) -> Tensor:
    """Squared norm of the embedding's gradient, and twice its product with the head's where both are one weight.

    With logit gradients b, head inputs a, gradients e at the embedding's rows and token ids x, the product is the sum
    over t, s of b_t[x_s] (a_t . e_s).
    """
    if not anatomy.embedding_trained:
        return torch.zeros((), device=batch.ids.device)
    e = _table_gradient(anatomy, hooks, batch.ids)
    total = embedding_norm2(batch.ids, e).to(hooks.norm2.dtype)
    for i, head in enumerate(heads):
        if head.tied is not None:
            at_ids = head.tied.at_ids  # (targets, own tokens)
            cross = ((head.tied.inputs @ e[i, : at_ids.shape[1]].T) * at_ids).sum()
            total[i] += 2 * cross.to(total.dtype)
    return total


def _head_signs(anatomy: Anatomy, signs: SignVectors | None, device: torch.device) -> HeadSigns | None:
    if signs is None:
        return None
    # A tied weight is one parameter: head and embedding project it with the same signs.
    name = "embedding" if anatomy.tied else "head"
    u, v = (torch.from_numpy(x).to(device, torch.float32) for x in signs.pair(name, *anatomy.head.weight.shape))
    bias = None
    if anatomy.head.bias is not None:
        bias = torch.from_numpy(signs.pair("head.bias", len(anatomy.head.bias), 1)[0]).to(device, torch.float32)
    return HeadSigns(u, v, bias)


def _sketches(
    anatomy: Anatomy, hooks: GhostHooks, batch: Batch, heads: list[HeadGradient], signs: SignVectors | None
) -> Floats | None:
    """All layers' projections, scaled so that inner products estimate those of the gradients."""
    if signs is None or hooks.sketch is None:
        return None
    total = hooks.sketch
    for i, head in enumerate(heads):
        if head.sketch is not None:
            total[i] += head.sketch
    if anatomy.embedding_trained:
        e = _table_gradient(anatomy, hooks, batch.ids)
        pair = signs.pair("embedding", *anatomy.embedding.weight.shape)
        u, v = (torch.from_numpy(x).to(e) for x in pair)
        total = total + (u[batch.ids] * (e @ v)).sum(1)
    scaled: Floats = (total / signs.dimensions**0.5).float().cpu().numpy()
    return scaled
