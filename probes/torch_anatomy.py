"""Where a causal language model keeps its body, embedding and head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .decoder import Decoder


class NoGhostRuleError(Exception):
    """The model does something the fast method has no rule for; the message says what. The loop can still measure."""


@dataclass(frozen=True)
class Head:
    """The map from hidden states to logits: softcap(hidden @ weight^T + bias)."""

    weight: Tensor  # (vocabulary, width)
    bias: Tensor | None
    softcap: float | None

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 logits (rows, vocabulary) of hidden states (rows, width)."""
        out = nn.functional.linear(hidden, self.weight, self.bias).float()
        return out if self.softcap is None else self.softcap * torch.tanh(out / self.softcap)


@dataclass(frozen=True)
class Anatomy:
    """A causal model taken apart.

    Attributes:
        model: The model as given, adapters included; called for logits.
        body: Everything between token ids and the hidden states before the head.
        embedding: The module that turns ids into vectors.
        embedding_scale: What it multiplies its rows with.
        head: The output map.
        trainable: Parameters the gradient norm is over, by name, each once.
    """

    model: nn.Module
    body: nn.Module
    embedding: nn.Embedding
    embedding_scale: float
    head: Head
    trainable: dict[str, nn.Parameter]

    @property
    def head_trained(self) -> bool:
        """Whether the head's weight is among the trainable parameters."""
        return any(p is self.head.weight for p in self.trainable.values())

    @property
    def embedding_trained(self) -> bool:
        """Whether the embedding's weight is among the trainable parameters."""
        return any(p is self.embedding.weight for p in self.trainable.values())

    @property
    def tied(self) -> bool:
        """Whether head and embedding are one trainable parameter."""
        return self.head.weight is self.embedding.weight and self.embedding_trained

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding: ids must be below it."""
        return self.embedding.num_embeddings

    def hidden(self, ids: Tensor) -> Tensor:
        """Hidden states before the head, (records, tokens, width), of ids (records, tokens)."""
        if isinstance(self.body, _OwnBody):
            out: Tensor = self.body(ids)
            return out
        states: Tensor = self.body(input_ids=ids, use_cache=False).last_hidden_state
        return states


class _OwnBody(nn.Module):
    """The small decoder's body, taking ids like everybody else's."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.inner = decoder.model

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.inner(self.inner.embed_tokens(ids))
        return out


def model_logits(model: nn.Module, ids: Tensor) -> Tensor:
    """Logits (records, tokens, vocabulary) by the model's own forward."""
    if isinstance(model, Decoder):
        out: Tensor = model(ids)
        return out
    logits: Tensor = model(input_ids=ids, use_cache=False).logits
    return logits


def dissect(model: nn.Module) -> Anatomy:
    """Takes a model apart; what requires a gradient now is what the norm will be over.

    Raises NoGhostRuleError where the parts do not add up to the model's own logits.
    """
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if isinstance(model, Decoder):
        head = Head(model.lm_head.weight, None, None)
        return Anatomy(model, _OwnBody(model), model.model.embed_tokens, 1.0, head, trainable)
    unwrap: Any = getattr(model, "get_base_model", None)  # peft's wrapper has it
    base: Any = unwrap() if unwrap is not None else model
    body = getattr(base, getattr(base, "base_model_prefix", "") or "model", None)
    embedding, output = base.get_input_embeddings(), base.get_output_embeddings()
    if not isinstance(body, nn.Module) or body is base:
        raise NoGhostRuleError(f"{type(base).__name__}: no body to be found")
    if not isinstance(embedding, nn.Embedding) or not isinstance(output, nn.Linear):
        raise NoGhostRuleError(f"embedding is a {type(embedding).__name__}, head a {type(output).__name__}")
    if type(output).forward is not nn.Linear.forward:
        raise NoGhostRuleError(f"the head is wrapped: {type(output).__name__}")
    config = base.config.get_text_config() if hasattr(base.config, "get_text_config") else base.config
    softcap = getattr(config, "final_logit_softcapping", None)
    scale = _plain_number(embedding, "embed_scale", 1.0)
    anatomy = Anatomy(model, body, embedding, scale, Head(output.weight, output.bias, softcap), trainable)
    _check_head(anatomy)
    return anatomy


def _plain_number(module: nn.Module, name: str, default: float) -> float:
    value: Any = getattr(module, name, default)
    return float(value)


@torch.no_grad()
def _check_head(anatomy: Anatomy) -> None:
    """Compares our logits with the model's: other scalings of hidden states or logits would go unnoticed."""
    count = min(8, anatomy.vocabulary)
    ids = torch.arange(count, device=anatomy.embedding.weight.device)[None]
    ours = anatomy.head.logits(anatomy.hidden(ids)[0])
    theirs = model_logits(anatomy.model, ids)[0].float()
    limit = 1e-3 if theirs.dtype == torch.float32 and anatomy.head.weight.dtype == torch.float32 else 5e-2
    if ours.shape != theirs.shape or float((ours - theirs).abs().amax()) > limit * (1 + float(theirs.abs().amax())):
        raise NoGhostRuleError(f"{type(anatomy.model).__name__}: the head does more than a linear map")
