"""The language-model head: loss of every token, and its gradient written out.

The head never goes through automatic differentiation. The gradient of the logits is softmax minus one-hot, times the
token's weight in the mean; from it follow the gradient of the hidden states, the squared norm of the head's own weight
gradient and, with tied weights, the cross term with the embedding's. Records go through in groups, so that
batch x tokens x vocabulary is never in memory at once.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, ops

from .mindspore_ghost import inner

_matmul = ops.MatMul()
_matmul_t = ops.MatMul(transpose_b=True)
_batch_t = ops.BatchMatMul(transpose_b=True)
_batch_ta = ops.BatchMatMul(transpose_a=True)

#: Numbers in one group's logits: 32 MiB in float32, about what a core's share of cache and memory bandwidth likes.
GROUP_LOGITS = 2**23


def group_size(tokens: int, vocabulary: int) -> int:
    """Records whose logits are computed together."""
    return max(1, GROUP_LOGITS // (tokens * vocabulary))


def _log_softmax(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and log probabilities, both (records * tokens, vocabulary)."""
    logits = _matmul_t(hidden.reshape(-1, hidden.shape[2]), weight).astype(ms.float32)
    return logits, ops.log_softmax(logits, -1)


def token_losses(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Nats at every position, (records, tokens); hidden (records, tokens, width), targets (records, tokens)."""
    _, logp = _log_softmax(hidden, weight)
    return -ops.gather_elements(logp, 1, targets.reshape(-1, 1)).reshape(targets.shape)


def head_gradient(
    hidden: Tensor, weight: Tensor, targets: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Losses and the explicit gradient of sum(scale * loss) of each record.

    Args:
        hidden: (records, tokens, width).
        weight: (vocabulary, width).
        targets: Next token at every position, (records, tokens).
        scale: What each position's loss counts: 1 / n_tokens where supervised, else 0; (records, tokens).

    Returns:
        Losses (records, tokens); gradient of `hidden`, same shape; squared norm of the weight's gradient (records, 1);
        the gradient of the logits before `scale`, (records, tokens, vocabulary); and `hidden` times `scale`.
    """
    records, tokens, width = hidden.shape
    _, logp = _log_softmax(hidden, weight)
    at = targets.reshape(-1, 1)
    losses = -ops.gather_elements(logp, 1, at).reshape(records, tokens)
    # softmax - one-hot, exact also where the model is sure: 1 is taken from one number, no sums cancel
    residual = ops.tensor_scatter_elements(ops.exp(logp), at, ops.full_like(at, -1.0, dtype=ms.float32), 1, "add")
    factor = scale.reshape(records, tokens, 1)
    gradient = _matmul(residual, weight).reshape(records, tokens, width) * factor
    residual = residual.reshape(records, tokens, -1)
    # `scale` is applied to the narrow side of each product: the wide one is passed over once less
    scaled = hidden * factor
    vocabulary = weight.shape[0]
    if tokens * (width + vocabulary) < width * vocabulary:
        norm2 = inner(_batch_t(residual, residual), _batch_t(scaled, scaled))
    else:
        product = _batch_ta(residual, scaled)
        norm2 = inner(product, product)
    return losses, gradient, norm2, residual, scaled


def columns_at(residual: Tensor, ids: Tensor) -> Tensor:
    """residual[n, t, ids[n, s]]: (records, tokens, tokens). The logit gradients of the tokens that the record reads."""
    records, tokens, _ = residual.shape
    index = ops.broadcast_to(ids.reshape(records, 1, tokens), (records, tokens, tokens))
    return ops.gather_elements(residual, 2, index)


def embedding_norm2(gradient: Tensor, ids: Tensor) -> Tensor:
    """Squared norm of the embedding's gradient, (records, 1): rows of one token add up before they are squared.

    gradient (records, tokens, width) at the embedding's output; ids (records, tokens).
    """
    same = (ids.unsqueeze(2) == ids.unsqueeze(1)).astype(ms.float32)
    return inner(_batch_t(gradient, gradient), same)


def tied_cross_term(scaled: Tensor, gradient: Tensor, columns: Tensor) -> Tensor:
    """Twice the inner product of the two gradients of a tied weight, (records, 1).

    2 * sum over t, s of b_t[x_s] (a_t . e_s); leaving it out costs up to 3e-3 of the norm.
    """
    return 2 * inner(_batch_t(scaled, gradient), columns)
