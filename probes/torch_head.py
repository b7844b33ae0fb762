"""The head, done explicitly: per-token losses, the gradient it sends back, and its own gradient norm.

One record's logits at a time, so that records x tokens x vocabulary is never held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .torch_anatomy import Anatomy, Head
from .torch_rules import INSTANTIATE_LIMIT

#: Logits held at once where only losses are wanted: 16 MiB of float32 stay near the cache of a CPU.
LOGITS_AT_ONCE = 1 << 22
#: Rows of a Gram matrix computed at once; what lies above its diagonal blocks is never computed.
GRAM_ROWS = 64


def losses_only(hidden: Tensor, head: Head, ids: Tensor, supervised: Tensor) -> list[Tensor]:
    """Nats of every supervised token, record by record.

    Args:
        hidden: (records, tokens, width).
        head: The output map.
        ids: (records, tokens).
        supervised: (records, tokens), bool, column 0 all False.
    """
    rows = hidden[:, :-1][supervised[:, 1:]]
    targets = ids[:, 1:][supervised[:, 1:]]
    step = max(1, LOGITS_AT_ONCE // head.weight.shape[0])
    parts = []
    for i in range(0, len(rows), step):
        logits = head.logits(rows[i : i + step])
        parts.append(_exponentials(logits, targets[i : i + step])[0])
    return list(torch.split(torch.cat(parts), supervised[:, 1:].sum(1).tolist()))


def _exponentials(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Losses (rows,), exp(logits - row maximum) in the place of the logits, and its row sums (rows,).

    One pass each: at this width a softmax is bound by memory, not by arithmetic.
    """
    logits.sub_(logits.amax(1, keepdim=True))
    picked = logits.gather(1, targets[:, None])[:, 0]
    total = logits.exp_().sum(1)
    return total.log() - picked, logits, total


class TiedPart(NamedTuple):
    """What the tied embedding's cross term needs of one record."""

    inputs: Tensor  # (targets, width): what went into the head
    at_ids: Tensor  # (targets, tokens): logit gradients at the record's own token ids


class HeadGradient(NamedTuple):
    """One record's head."""

    losses: Tensor  # (targets,) nats
    back: Tensor  # (targets, width): gradient of the mean loss with regard to the hidden states
    norm2: Tensor  # () squared norm of the head's own gradient; 0 where it is not trained
    tied: TiedPart | None
    sketch: Tensor | None  # (dimensions,)
    logit_amax: Tensor | None  # (), where asked for
    grad_amax: Tensor | None  # ()


@dataclass(frozen=True)
class HeadSigns:
    """Sign vectors of the head's weight and bias as float32: u (vocabulary, k), v (width, k), bias (vocabulary, k)."""

    u: Tensor
    v: Tensor
    bias: Tensor | None


def head_gradient(
    inputs: Tensor, targets: Tensor, own_ids: Tensor, anatomy: Anatomy, signs: HeadSigns | None, *, amax: bool = False
) -> HeadGradient:
    """Loss and gradient of one record's head; inputs (targets, width), targets (targets,), own_ids (tokens,).

    With p the softmax and y the target, the gradient of the mean loss at the logits is (p - y) / targets; a soft cap
    c tanh(x / c) multiplies it by 1 - tanh^2.
    """
    head = anatomy.head
    logits = head.logits(inputs)
    logit_amax = logits.abs().amax() if amax else None
    slope = None if head.softcap is None else 1 - (logits / head.softcap).square()
    losses, b, total = _exponentials(logits, targets)
    b *= 1 / (total * len(targets))[:, None]
    b[torch.arange(len(targets), device=b.device), targets] -= 1 / len(targets)
    if slope is not None:
        b *= slope
    back = b.to(head.weight.dtype) @ head.weight
    norm2 = torch.zeros((), device=b.device)
    sketch: Tensor | None = None
    a = inputs.float()
    if anatomy.head_trained:
        norm2 = _outer_norm2(a, b)
        if signs is not None:
            sketch = ((b @ signs.u) * (a @ signs.v)).sum(0)
        if head.bias is not None:
            total = b.sum(0)
            norm2 = norm2 + total.square().sum()
            if sketch is not None and signs is not None and signs.bias is not None:
                sketch = sketch + total @ signs.bias
    tied = TiedPart(a, b[:, own_ids]) if anatomy.tied else None
    return HeadGradient(losses, back, norm2, tied, sketch, logit_amax, b.abs().amax() if amax else None)


def _outer_norm2(a: Tensor, b: Tensor) -> Tensor:
    """|b^T a|^2 for a (rows, width), b (rows, vocabulary), never holding more than a slice of the product."""
    rows, width = a.shape
    vocabulary = b.shape[1]
    total = torch.zeros((), device=a.device)
    # Half of a Gram matrix is enough, and it is small: on a CPU it wins until it takes twice the multiplications.
    if rows * (width + vocabulary) < 2 * width * vocabulary:
        for i in range(0, rows, GRAM_ROWS):
            after = min(i + GRAM_ROWS, rows)
            pairs = (a[i:after] @ a[:after].T) * (b[i:after] @ b[:after].T)
            total = total + 2 * pairs[:, :i].sum() + pairs[:, i:].sum()
        return total
    step = max(1, INSTANTIATE_LIMIT // width)
    for i in range(0, vocabulary, step):
        total = total + (b[:, i : i + step].T @ a).square_().sum()
    return total
