"""Squared per-sample gradient norms of single layers, from what goes in and what comes back.

For a linear map with inputs a (tokens, d) and output gradients b (tokens, p) the weight's gradient of one record is
b^T a. Its squared norm is the sum over tokens t, s of (a_t . a_s)(b_t . b_s) (Goodfellow 2015, arXiv:1510.01799; for
sequences Li et al. 2021, arXiv:2110.05679), or that of the product itself: whichever needs fewer multiplications
(Bu et al. 2022, arXiv:2205.10683). All sums run in float32 at least.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Entries of b^T a held at once; beyond it the records are done one after the other.
INSTANTIATE_LIMIT = 1 << 25


def gram_is_cheaper(tokens: int, d: int, p: int) -> bool:
    """Whether two token-by-token products cost less than b^T a."""
    return tokens * (d + p) < d * p


def linear_norm2(a: Tensor, b: Tensor, gram_a: Tensor | None = None) -> Tensor:
    """|b^T a|^2 of every record; a (records, tokens, d), b (records, tokens, p), result (records,).

    `gram_a` is a a^T, (records, tokens, tokens), where the caller has it from a layer with the same input.
    """
    records, tokens, d = a.shape
    p = b.shape[2]
    b = b.float()
    if gram_is_cheaper(tokens, d, p):
        if gram_a is None:
            gram_a = gram(a)
        return (gram_a * torch.bmm(b, b.mT)).sum((1, 2))
    a = a.float()
    step = max(1, INSTANTIATE_LIMIT // (d * p))
    parts = [torch.bmm(b[i : i + step].mT, a[i : i + step]).square_().sum((1, 2)) for i in range(0, records, step)]
    return torch.cat(parts)


def gram(a: Tensor) -> Tensor:
    """A a^T of every record in float32, (records, tokens, tokens)."""
    a = a.float()
    return torch.bmm(a, a.mT)


def bias_grad(b: Tensor) -> Tensor:
    """The gradient of a bias, the sum of b over all axes but the first and the last: (records, p)."""
    b = b.float()
    return b.flatten(1, -2).sum(1)


def gain_grad(normalised: Tensor, b: Tensor) -> Tensor:
    """The gradient of a norm's gain, the sum of b times the normalised input: (records, width)."""
    return (b.float() * normalised.float()).flatten(1, -2).sum(1)


def embedding_norm2(ids: Tensor, e: Tensor) -> Tensor:
    """|gradient of the embedding table|^2 of every record; ids (records, tokens), e (records, tokens, width).

    Rows of the same token add up before they are squared, so tokens are paired: the sum of e_t . e_s where ids agree.
    """
    e = e.float()
    same = ids[:, :, None] == ids[:, None, :]
    return (torch.bmm(e, e.mT) * same).sum((1, 2))
