"""A small Llama decoder in plain torch: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Module and parameter names follow the Hugging Face Llama layout, so that the same `model.safetensors` loads here, in
transformers and in the MindSpore backend. No cache and no attention mask: the probe only ever reads whole records
padded on the right, for which causal attention alone is exact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from .decoder_config import DecoderConfig


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis; statistics in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalises over the last axis."""
        x32 = x.float()
        x32 = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * x32.to(x.dtype)


def rotary_tables(config: DecoderConfig, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angles, each (length, head_dim), in float32.

    Angle of position t and pair i: t * theta ** (-2 i / head_dim) (Su et al. 2021, arXiv:2104.09864), the two halves of
    a head forming the pairs.
    """
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=device)
    angle = torch.outer(
        torch.arange(length, dtype=torch.float32, device=device), config.rope_theta ** (-half / config.head_dim)
    )
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    """Causal self-attention; `num_kv_heads` key/value heads are shared by groups of query heads."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        kv_width = self.kv_heads * self.head_dim
        bias = config.attention_bias
        self.q_proj = nn.Linear(config.width, self.heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(config.width, kv_width, bias=bias)
        self.v_proj = nn.Linear(config.width, kv_width, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.head_dim, config.width, bias=False)

    @staticmethod
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention; all (batch, heads, tokens, head_dim)."""
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Mixes x (batch, tokens, width) over earlier tokens; cos and sin are (tokens, head_dim)."""
        batch, length, _ = x.shape
        # Each is batch first, then heads, tokens and the width of a head.
        q = self.q_proj(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        if self.kv_heads != self.heads:
            k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
            v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        mixed = self.attend(q, k, v)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, self.heads * self.head_dim))
        return out


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.mlp_width, bias=False)
        self.up_proj = nn.Linear(config.width, config.mlp_width, bias=False)
        self.down_proj = nn.Linear(config.mlp_width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Takes and returns (batch, tokens, width)."""
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.width, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.width, config.norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Takes and returns (batch, tokens, width)."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class DecoderBody(nn.Module):
    """Embeddings in, hidden states before the head out; both (batch, tokens, width)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.width, config.norm_eps)

    def forward(self, inputs_embeds: Tensor) -> Tensor:
        """See the class."""
        cos, sin = rotary_tables(self.config, inputs_embeds.shape[1], inputs_embeds.device)
        cos, sin = cos.to(inputs_embeds.dtype), sin.to(inputs_embeds.dtype)
        x = inputs_embeds
        for layer in self.layers:
            x = layer(x, cos, sin)
        out: Tensor = self.norm(x)
        return out


class Decoder(nn.Module):
    """The whole language model: `model` (the body) and `lm_head`, whose weight may be the embedding's."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.model = DecoderBody(config)
        self.lm_head = nn.Linear(config.width, config.vocab_size, bias=False)
        if config.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (batch, tokens, vocabulary) of token ids (batch, tokens)."""
        logits: Tensor = self.lm_head(self.model(self.model.embed_tokens(ids)))
        return logits


def load_decoder(folder: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    """Reads `config.json` and `model.safetensors` of a Llama-layout folder.

    Raises FileNotFoundError where one is missing, ValueError where the configuration asks for something this decoder
    does not have or a weight is missing or left over.
    """
    config = DecoderConfig.from_folder(folder)
    weights: dict[str, Any] = load_file(folder / "model.safetensors")
    if config.tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    with torch.device("meta"):
        decoder = Decoder(config)
    try:
        decoder.load_state_dict({name: w.to(dtype) for name, w in weights.items()}, assign=True)
    except RuntimeError as error:
        raise ValueError(f"{folder}: the weights do not fit config.json: {error}") from error
    if config.tied:
        decoder.lm_head.weight = decoder.model.embed_tokens.weight
    return decoder.eval()
