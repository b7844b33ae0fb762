"""The two compiled passes: losses only, and losses with exact gradient norms.

Both take whole batches of one fixed shape. In graph mode each shape is compiled once, which takes seconds: so batches
come in few shapes (`mindspore_shapes`). In PyNative mode the same code runs operator by operator, with a fraction of
the memory: graph mode suits small models, PyNative large ones on a CPU.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from .mindspore_decoder import DecoderBody
from .mindspore_ghost import projected, times
from .mindspore_head import (
    columns_at,
    embedding_norm2,
    group_size,
    head_gradient,
    tied_cross_term,
    token_losses,
)
from .mindspore_watch import record_amax


class LossPass(nn.Cell):
    """Token losses, forward only."""

    def __init__(self, body: DecoderBody, embed: Parameter, head: Parameter | None) -> None:
        super().__init__()
        self.body, self.embed, self.head = body, embed, head

    def construct(
        self,
        ids: Tensor,
        targets: Tensor,
        c: Tensor,
        m: Tensor,
        valid: Tensor,
        cos: Tensor,
        sin: Tensor,
        causal: Tensor,
        window: Tensor,
    ) -> Tensor:
        """Nats at every position, (records, tokens)."""
        records, tokens = ids.shape
        weight = self.embed if self.head is None else self.head
        hidden = self.body(ops.gather(self.embed, ids, 0), cos, sin, causal, window, c, m, valid)
        step = group_size(tokens, weight.shape[0])
        losses = []
        for start in range(0, records, step):
            stop = min(start + step, records)
            losses.append(token_losses(hidden[start:stop], weight, targets[start:stop]))
        return ops.cat(losses, 0)


class GradientPass(nn.Cell):
    """Token losses, and what the channels bring back from the backward pass."""

    def __init__(
        self,
        body: DecoderBody,
        embed: Parameter,
        head: Parameter | None,
        signs: tuple[Parameter, ...] = (),
        watched: bool = False,
    ) -> None:
        super().__init__()
        self.body, self.embed, self.head = body, embed, head
        self.sketched, self.watched = bool(signs), watched
        if signs:  # of the head, then of the embedding; a tied weight shares them
            self.head_u, self.head_v, self.embed_u, self.embed_v = signs

    def _hidden(
        self,
        embedded: Tensor,
        c: Tensor,
        m: Tensor,
        valid: Tensor,
        cos: Tensor,
        sin: Tensor,
        causal: Tensor,
        window: Tensor,
    ) -> Tensor:
        # No gradient of the tables: that of `causal` alone would be a sum over all attention scores.
        return self.body(
            embedded,
            ops.stop_gradient(cos),
            ops.stop_gradient(sin),
            ops.stop_gradient(causal),
            ops.stop_gradient(window),
            c,
            m,
            ops.stop_gradient(valid),
        )

    def construct(
        self,
        ids: Tensor,
        targets: Tensor,
        scale: Tensor,
        c: Tensor,
        m: Tensor,
        valid: Tensor,
        cos: Tensor,
        sin: Tensor,
        causal: Tensor,
        window: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses (records, tokens); channel (records, 1 + sketch): squared norm, then projection; amax.

        amax is (records, places + 2, 2) where watched: the largest activation and gradient at the embeddings, at each
        watched place, and at the logits.

        `c` and `m` are zeros of the channels' shapes. They have to be arguments: a constant would be folded away, and
        the measurements with it.
        """
        records, tokens = ids.shape
        weight = self.embed if self.head is None else self.head

        embedded = ops.gather(self.embed, ids, 0)
        # Everything is handed to vjp: in graph mode a function inside may not see the arguments of the one around it.
        hidden, pull_back = ms.vjp(self._hidden, embedded, c, m, valid, cos, sin, causal, window)
        step = group_size(tokens, weight.shape[0])
        losses, gradients, norms, columns, scaled_hidden, sketches, tops = [], [], [], [], [], [], []
        for start in range(0, records, step):
            stop = min(start + step, records)
            one, factor = hidden[start:stop], scale[start:stop]
            loss, gradient, norm2, residual, scaled = head_gradient(one, weight, targets[start:stop], factor)
            losses.append(loss)
            gradients.append(gradient)
            norms.append(norm2)
            scaled_hidden.append(scaled)
            if self.head is None:
                columns.append(columns_at(residual, ids[start:stop]))
            if self.sketched:
                sketches.append(projected(scaled, residual, self.head_u, self.head_v))
            if self.watched:
                # of the logits only where a loss is: the others are not computed in training either
                counted = ops.cast(factor > 0, ms.float32)
                logits = times(one, weight)
                wide = residual * factor.unsqueeze(2)
                tops.append(ops.stack((record_amax(logits, counted), record_amax(wide, counted)), 1))
        back = pull_back(ops.cat(gradients, 0))
        e, channel, slots = back[0], back[1], back[2]
        norm2 = channel[:, :1] + ops.cat(norms, 0) + embedding_norm2(e, ids)
        if self.head is None:
            norm2 = norm2 + tied_cross_term(ops.cat(scaled_hidden, 0), e, ops.cat(columns, 0))
        if self.sketched:
            read = (ops.gather(self.embed_u, ids, 0) * ops.matmul(e, self.embed_v)).sum(1)
            norm2 = ops.cat((norm2, channel[:, 1:] + ops.cat(sketches, 0) + read), 1)
        amax: Any = c[:, :1]
        if self.watched:
            ends = ops.stack((record_amax(embedded, valid), record_amax(e, valid)), 1)
            logits_amax = ops.cat(tops, 0)
            amax = ops.cat((ends.unsqueeze(1), ops.transpose(slots, (1, 0, 2)), logits_amax.unsqueeze(1)), 1)
        return ops.cat(losses, 0), norm2, amax
