"""The Llama-layout decoder as MindSpore Cells: Llama, Mistral and Qwen2, with whatever operators it is given.

The same Cells serve two ends. With `PlainOperators` this is an ordinary differentiable model, to train, to put through
`auto_mixed_precision` or to time. With the operators of `mindspore_ghost` its backward pass sends measurements down
the side channels `c` and `m` that every Cell passes along. The layout of attributes follows Hugging Face, so that
weights keep their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, amp, nn, ops
from numpy.typing import NDArray

from .mindspore_layout import FamilyConfig

#: Values, or parameters made of them, under their Hugging Face names.
Weights = Mapping[str, NDArray[np.float32]]
Parameters = Mapping[str, Parameter]


def parameters(weights: Weights, *, trainable: bool) -> dict[str, Parameter]:
    """One parameter per weight, each under its name. Several decoders may share them."""
    return {name: Parameter(Tensor(values), name=name, requires_grad=trainable) for name, values in weights.items()}


class Operators(Protocol):
    """What a decoder is built from. Each Cell takes (x, c, m, valid) and returns a tensor like its plain namesake."""

    def linear(self, name: str, weight: Parameter, bias: Parameter | None) -> nn.Cell:
        """The product x @ weight.T, plus bias; weight is (out, in)."""

    def norm(self, name: str, weight: Parameter) -> nn.Cell:
        """Root-mean-square norm over the last axis, times weight."""


class _Linear(nn.Cell):
    """x @ weight.T + bias."""

    def __init__(self, weight: Parameter, bias: Parameter | None) -> None:
        super().__init__()
        self.out_width, self.in_width = weight.shape
        self.weight, self.bias = weight, bias
        # the primitive: `ops.matmul(x, w.T)` first writes a transposed copy of w on CPU, at half the speed
        self.matmul = ops.MatMul(transpose_b=True)
        self.reshape = ops.Reshape()

    def construct(self, x: Tensor, c: Tensor, m: Tensor, valid: Tensor) -> Tensor:  # noqa: ARG002
        """(batch, tokens, in) -> (batch, tokens, out)."""
        batch, tokens, _ = x.shape
        y = self.matmul(self.reshape(x, (batch * tokens, self.in_width)), self.weight)
        if self.bias is not None:
            y = y + self.bias
        return self.reshape(y, (batch, tokens, self.out_width))


class Normalise(nn.Cell):
    """X over its root mean square (Zhang and Sennrich 2019, arXiv:1910.07467), before any gain.

    Float32 inside whatever the model's precision, as in transformers (see `half_precision`): in fp16 the squares
    overflow for activations above 256.
    """

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.cast, self.mean, self.rsqrt = ops.Cast(), ops.ReduceMean(keep_dims=True), ops.Rsqrt()

    def construct(self, x: Tensor) -> Tensor:
        """(batch, tokens, width), same out."""
        x = self.cast(x, ms.float32)
        return x * self.rsqrt(self.mean(x * x, -1) + self.eps)


class _Norm(nn.Cell):
    def __init__(self, weight: Parameter, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.normalise = Normalise(eps)

    def construct(self, x: Tensor, c: Tensor, m: Tensor, valid: Tensor) -> Tensor:  # noqa: ARG002
        """(batch, tokens, width), same out."""
        return self.normalise(x).astype(x.dtype) * self.weight


class PlainOperators:
    """An ordinary model, to train or to put through `auto_mixed_precision`."""

    def __init__(self, eps: float) -> None:
        self.eps = eps

    def linear(self, name: str, weight: Parameter, bias: Parameter | None) -> nn.Cell:
        """The product x @ weight.T, plus bias."""
        del name
        return _Linear(weight, bias)

    def norm(self, name: str, weight: Parameter) -> nn.Cell:
        """Root-mean-square norm."""
        del name
        return _Norm(weight, self.eps)


class _Builder:
    """Hands weights to operators by name."""

    def __init__(self, config: FamilyConfig, weights: Parameters, operators: Operators) -> None:
        self.config, self.weights, self.operators = config, weights, operators

    def linear(self, name: str, bias: bool) -> nn.Cell:
        shift = self.weights[f"{name}.bias"] if bias else None
        return self.operators.linear(name, self.weights[f"{name}.weight"], shift)

    def norm(self, name: str) -> nn.Cell:
        return self.operators.norm(name, self.weights[f"{name}.weight"])


class Attention(nn.Cell):
    """Causal self-attention; `num_kv_heads` key/value heads are shared by groups of query heads."""

    def __init__(self, build: _Builder, prefix: str) -> None:
        super().__init__()
        config = build.config
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.groups = self.heads // self.kv_heads
        self.scale = config.head_dim**-0.5
        self.q_proj = build.linear(f"{prefix}.q_proj", config.attention_bias)
        self.k_proj = build.linear(f"{prefix}.k_proj", config.attention_bias)
        self.v_proj = build.linear(f"{prefix}.v_proj", config.attention_bias)
        self.o_proj = build.linear(f"{prefix}.o_proj", config.output_bias)
        self.reshape, self.transpose, self.softmax = ops.Reshape(), ops.Transpose(), ops.Softmax(-1)
        self.halves, self.join = ops.Split(-1, 2), ops.Concat(-1)
        self.matmul, self.matmul_t = ops.BatchMatMul(), ops.BatchMatMul(transpose_b=True)

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = self.halves(x)
        return x * cos + self.join((-second, first)) * sin

    def construct(
        self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor, c: Tensor, m: Tensor, valid: Tensor
    ) -> Tensor:
        """(batch, tokens, width), same out; `bias` (tokens, tokens) is added to the scores."""
        batch, tokens, _ = x.shape
        q = self.reshape(self.q_proj(x, c, m, valid), (batch, tokens, self.heads, self.head_dim))
        k = self.reshape(self.k_proj(x, c, m, valid), (batch, tokens, self.kv_heads, self.head_dim))
        v = self.reshape(self.v_proj(x, c, m, valid), (batch, tokens, self.kv_heads, self.head_dim))
        # each becomes (batch, heads, tokens, head_dim)
        q = self._rotate(self.transpose(q, (0, 2, 1, 3)), cos, sin) * self.scale
        k = self._rotate(self.transpose(k, (0, 2, 1, 3)), cos, sin)
        v = self.transpose(v, (0, 2, 1, 3))
        # The query heads of one key head lie side by side as more rows, so keys and values are never repeated.
        q = self.reshape(q, (batch, self.kv_heads, self.groups * tokens, self.head_dim))
        scores = self.reshape(self.matmul_t(q, k), (batch, self.heads, tokens, tokens)) + bias
        share = self.reshape(self.softmax(scores), (batch, self.kv_heads, self.groups * tokens, tokens))
        mixed = self.reshape(self.matmul(share, v), (batch, self.heads, tokens, self.head_dim))
        mixed = self.reshape(self.transpose(mixed, (0, 2, 1, 3)), (batch, tokens, self.heads * self.head_dim))
        return self.o_proj(mixed, c, m, valid)


class MLP(nn.Cell):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, build: _Builder, prefix: str) -> None:
        super().__init__()
        bias = build.config.mlp_bias
        self.gate_proj = build.linear(f"{prefix}.gate_proj", bias)
        self.up_proj = build.linear(f"{prefix}.up_proj", bias)
        self.down_proj = build.linear(f"{prefix}.down_proj", bias)
        self.silu = nn.SiLU()

    def construct(self, x: Tensor, c: Tensor, m: Tensor, valid: Tensor) -> Tensor:
        """(batch, tokens, width), same out."""
        return self.down_proj(self.silu(self.gate_proj(x, c, m, valid)) * self.up_proj(x, c, m, valid), c, m, valid)


class Layer(nn.Cell):
    """One pre-norm transformer block. `windowed` chooses which of the two attention tables it reads."""

    def __init__(self, build: _Builder, prefix: str, windowed: bool) -> None:
        super().__init__()
        self.windowed = windowed
        self.input_layernorm = build.norm(f"{prefix}.input_layernorm")
        self.self_attn = Attention(build, f"{prefix}.self_attn")
        self.post_attention_layernorm = build.norm(f"{prefix}.post_attention_layernorm")
        self.mlp = MLP(build, f"{prefix}.mlp")

    def construct(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        causal: Tensor,
        window: Tensor,
        c: Tensor,
        m: Tensor,
        valid: Tensor,
    ) -> Tensor:
        """(batch, tokens, width), same out."""
        bias = window if self.windowed else causal
        x = x + self.self_attn(self.input_layernorm(x, c, m, valid), cos, sin, bias, c, m, valid)
        return x + self.mlp(self.post_attention_layernorm(x, c, m, valid), c, m, valid)


class DecoderBody(nn.Cell):
    """From embeddings to the hidden states before the head; both (batch, tokens, width)."""

    def __init__(self, config: FamilyConfig, weights: Parameters, operators: Operators) -> None:
        super().__init__()
        build = _Builder(config, weights, operators)
        self.layers = nn.CellList(
            [
                Layer(build, f"model.layers.{index}", windowed=bool(config.windows and config.windows[index]))
                for index in range(config.num_layers)
            ]
        )
        self.norm = build.norm("model.norm")

    def construct(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        causal: Tensor,
        window: Tensor,
        c: Tensor,
        m: Tensor,
        valid: Tensor,
    ) -> Tensor:
        """`cos`, `sin` (tokens, head_dim); `causal`, `window` (tokens, tokens); `c`, `m`, `valid`: side channels."""
        for layer in self.layers:
            x = layer(x, cos, sin, causal, window, c, m, valid)
        return self.norm(x, c, m, valid)


class Decoder(nn.Cell):
    """The plain language model: token ids to logits (batch * tokens, vocabulary)."""

    def __init__(self, config: FamilyConfig, weights: Weights) -> None:
        super().__init__()
        own = parameters(weights, trainable=True)
        self.body = DecoderBody(config, own, PlainOperators(config.norm_eps))
        self.embed = own["model.embed_tokens.weight"]
        self.head = None if config.tied else own["lm_head.weight"]
        self.matmul = ops.MatMul(transpose_b=True)

    def construct(self, ids: Tensor, cos: Tensor, sin: Tensor, causal: Tensor, window: Tensor) -> Tensor:
        """`ids` (batch, tokens) and the four `tables`."""
        batch, tokens = ids.shape
        x = ops.gather(self.embed, ids, 0)
        nothing = x[:, :1, 0]
        hidden = self.body(x, cos, sin, causal, window, nothing, nothing, nothing)
        weight = self.embed if self.head is None else self.head
        return self.matmul(hidden.reshape(batch * tokens, -1), weight)


class DecoderLoss(nn.Cell):
    """A decoder with its loss in float32: what a MindSpore user trains. The loss stays outside what is made fp16."""

    def __init__(self, decoder: nn.Cell) -> None:
        super().__init__()
        self.decoder = decoder

    def construct(
        self, ids: Tensor, targets: Tensor, scale: Tensor, cos: Tensor, sin: Tensor, causal: Tensor, window: Tensor
    ) -> Tensor:
        """Loss of each record, (batch,): the sum of `scale` times the surprise at `targets`, all (batch, tokens)."""
        logits = self.decoder(ids, cos, sin, causal, window).astype(ms.float32)
        surprise = ops.cross_entropy(logits, targets.reshape(-1), reduction="none").reshape(targets.shape)
        return (surprise * scale).sum(1)


def half_precision(decoder: Decoder, level: str = "O2") -> nn.Cell:
    """The decoder in fp16 with float32 norms, as `auto_mixed_precision(decoder, level)` would have it.

    MindSpore's own list of float32 cells ends with LayerNorm: it does not know this norm. And a cast inside a Cell does
    not help, since in PyNative mode `to_float` casts the inputs of every operator: `x.astype(float32) * x` is fp16. The
    norm is therefore put on the list. "O3" leaves nothing in float32.
    """
    if level == "O3":
        return amp.auto_mixed_precision(decoder, level)
    if level != "O2":
        raise ValueError(f"level {level!r}: O2 and O3 can be replayed")
    return amp.custom_mixed_precision(decoder, black_list=[*amp.get_black_list(), Normalise])


def tables(config: FamilyConfig, length: int) -> tuple[Any, Any, Any, Any]:
    """The four tables every forward pass takes: cosine, sine, causal and windowed attention."""
    cos, sin = config.position_tables(length)
    causal = config.attention_bias_table(length)
    width = max(config.windows, default=0)  # a family has one width of window, or none
    window = config.attention_bias_table(length, width) if width else causal
    return Tensor(cos), Tensor(sin), Tensor(causal), Tensor(window)
