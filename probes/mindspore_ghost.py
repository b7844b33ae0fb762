"""Operators whose backward pass measures: exact per-record gradient norms without forming a weight gradient.

A user-defined `bprop` may return anything of the right shape as the gradient of an input. So every operator takes a
side channel `c` (batch, 1 + sketch) that does nothing in the forward pass, and returns as its gradient the squared
norm of the record's weight gradient, followed by a random projection of that gradient. Since the framework adds up the
gradients of an input used in many places, the gradient of `c` after one backward pass is the sum over all layers.

For a linear layer with input a (tokens, d) and output gradient b (tokens, p) the weight gradient of a record is b^T a;
its squared norm is also sum over t, s of (a_t . a_s)(b_t . b_s) (Goodfellow 2015, arXiv:1510.01799; Li et al. 2021,
arXiv:2110.05679; Bu et al. 2022, arXiv:2205.10683): per layer whichever is cheaper is taken.

Traps of MindSpore 2.10, each of which cost somebody an afternoon:
- In graph mode a `bprop` may not touch a Parameter: weights and signs come in as inputs, and their gradient (dead code,
  for nobody asks for it) has to be returned.
- `c` must be an argument of the compiled function: a constant is folded away together with its gradient.
- The first argument of a method must be called `self`; the source must lie in a file; no inline lambda under `jit`.
- Primitives (`ops.Reshape()`) compile several times faster than functions and tensor methods (`x.reshape`), which are
  Python code that is analysed anew at every call. Cells without a state are shared for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from numpy.typing import NDArray

from .mindspore_decoder import Normalise

#: (name, outputs, inputs) -> random signs u (outputs, K) and v (inputs, K) of one weight matrix.
Signs = Callable[[str, int, int], tuple[NDArray[np.int8], NDArray[np.int8]]]

_reshape = ops.Reshape()
_matmul = ops.MatMul()
_matmul_t = ops.MatMul(transpose_b=True)
_batch_t = ops.BatchMatMul(transpose_b=True)
_batch_ta = ops.BatchMatMul(transpose_a=True)
_sum_tokens = ops.ReduceSum(keep_dims=False)
_join = ops.Concat(1)
_nothing = ops.ZerosLike()


def inner(x: Tensor, y: Tensor) -> Tensor:
    """Sum of x * y over all axes but the first, (batch, 1).

    A product of a row with a column: on CPU `(x * y).sum()` runs on one thread and takes four times as long.
    """
    batch = x.shape[0]
    return _reshape(_batch_t(_reshape(x, (batch, 1, -1)), _reshape(y, (batch, 1, -1))), (batch, 1))


def product_norm2(a: Tensor, b: Tensor) -> Tensor:
    """Squared Frobenius norm of b^T a for each record, (batch, 1); a (batch, T, d), b (batch, T, p)."""
    tokens, d, p = a.shape[1], a.shape[2], b.shape[2]
    if tokens * (d + p) < d * p:
        return inner(_batch_t(a, a), _batch_t(b, b))
    gradient = _batch_ta(b, a)
    return inner(gradient, gradient)


def times(x: Tensor, w: Tensor) -> Tensor:
    """X @ w.T over the last axis: (batch, tokens, in) and (out, in) give (batch, tokens, out)."""
    batch, tokens, width = x.shape
    return _reshape(_matmul_t(_reshape(x, (batch * tokens, width)), w), (batch, tokens, w.shape[0]))


def times_back(x: Tensor, w: Tensor) -> Tensor:
    """X @ w over the last axis: (batch, tokens, out) and (out, in) give (batch, tokens, in)."""
    batch, tokens, width = x.shape
    return _reshape(_matmul(_reshape(x, (batch * tokens, width)), w), (batch, tokens, w.shape[1]))


def projected(a: Tensor, b: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """u^T (b^T a) v for each of the K pairs of sign vectors: (batch, K)."""
    return _sum_tokens(times_back(b, u) * times_back(a, v), 1)


class _LinearOp(nn.Cell):
    """a @ w.T, whose backward pass sends |b^T a|^2 down the channel."""

    def construct(self, a: Tensor, w: Tensor, c: Tensor) -> Tensor:  # noqa: ARG002
        return times(a, w)

    def bprop(self, a: Tensor, w: Tensor, c: Tensor, out: Tensor, b: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG002
        return times_back(b, w), _nothing(w), product_norm2(a, b)


class _SketchedLinearOp(nn.Cell):
    """The same, with the projection of the gradient behind the norm."""

    def construct(self, a: Tensor, w: Tensor, u: Tensor, v: Tensor, c: Tensor) -> Tensor:  # noqa: ARG002
        return times(a, w)

    def bprop(
        self,
        a: Tensor,
        w: Tensor,
        u: Tensor,
        v: Tensor,
        c: Tensor,  # noqa: ARG002
        out: Tensor,  # noqa: ARG002
        b: Tensor,
    ) -> tuple[Tensor, ...]:
        channel = _join((product_norm2(a, b), projected(a, b, u, v)))
        return times_back(b, w), _nothing(w), _nothing(u), _nothing(v), channel


class _ScaleOp(nn.Cell):
    """x * w over the last axis: the gradient of the gains is the sum over tokens of b * x."""

    def construct(self, x: Tensor, w: Tensor, c: Tensor) -> Tensor:  # noqa: ARG002
        return x * w

    def bprop(self, x: Tensor, w: Tensor, c: Tensor, out: Tensor, b: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG002
        gradient = _sum_tokens(b * x, 1)
        return b * w, _nothing(w), inner(gradient, gradient)


class _SketchedScaleOp(nn.Cell):
    def construct(self, x: Tensor, w: Tensor, u: Tensor, c: Tensor) -> Tensor:  # noqa: ARG002
        return x * w

    def bprop(self, x: Tensor, w: Tensor, u: Tensor, c: Tensor, out: Tensor, b: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG002
        gradient = _sum_tokens(b * x, 1)
        return b * w, _nothing(w), _nothing(u), _join((inner(gradient, gradient), _matmul(gradient, u)))


class _ShiftOp(nn.Cell):
    """x + w over the last axis: the gradient of a bias is the sum over tokens of b."""

    def construct(self, x: Tensor, w: Tensor, c: Tensor) -> Tensor:  # noqa: ARG002
        return x + w

    def bprop(self, x: Tensor, w: Tensor, c: Tensor, out: Tensor, b: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG002
        gradient = _sum_tokens(b, 1)
        return b, _nothing(w), inner(gradient, gradient)


class _SketchedShiftOp(nn.Cell):
    def construct(self, x: Tensor, w: Tensor, u: Tensor, c: Tensor) -> Tensor:  # noqa: ARG002
        return x + w

    def bprop(self, x: Tensor, w: Tensor, u: Tensor, c: Tensor, out: Tensor, b: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG002
        gradient = _sum_tokens(b, 1)
        return b, _nothing(w), _nothing(u), _join((inner(gradient, gradient), _matmul(gradient, u)))


def sign_parameter(name: str, values: NDArray[np.int8]) -> Parameter:
    """Signs as a frozen parameter; float32, for products of mixed types are not to be had on every device."""
    return Parameter(Tensor(values.astype(np.float32)), name=name, requires_grad=False)


class _GhostLinear(nn.Cell):
    """A linear layer that measures. Its weight is frozen, so no weight gradient is ever formed."""

    def __init__(self, product: nn.Cell, shift: nn.Cell, weight: Parameter, bias: Parameter | None) -> None:
        super().__init__()
        self.product, self.shift = product, shift
        self.weight = weight
        self.bias = bias

    def construct(self, x: Tensor, c: Tensor, m: Tensor, valid: Tensor) -> Tensor:  # noqa: ARG002
        """(batch, tokens, in) -> (batch, tokens, out)."""
        y = self.product(x, self.weight, c)
        if self.bias is not None:
            y = self.shift(y, self.bias, c)
        return y


class _SketchedLinear(nn.Cell):
    """The same with a sketch; `signs` are u and v of the weight, and u of the bias."""

    def __init__(
        self,
        product: nn.Cell,
        shift: nn.Cell,
        weight: Parameter,
        bias: Parameter | None,
        signs: tuple[Parameter, Parameter, Parameter | None],
    ) -> None:
        super().__init__()
        self.product, self.shift = product, shift
        self.weight = weight
        self.bias = bias
        self.u, self.v, self.bias_u = signs

    def construct(self, x: Tensor, c: Tensor, m: Tensor, valid: Tensor) -> Tensor:  # noqa: ARG002
        """(batch, tokens, in) -> (batch, tokens, out)."""
        y = self.product(x, self.weight, self.u, self.v, c)
        if self.bias is not None:
            y = self.shift(y, self.bias, self.bias_u, c)
        return y


class _GhostNorm(nn.Cell):
    """A root-mean-square norm that measures."""

    def __init__(self, scale: nn.Cell, normalise: nn.Cell, weight: Parameter) -> None:
        super().__init__()
        self.scale, self.normalise = scale, normalise
        self.weight = weight

    def construct(self, x: Tensor, c: Tensor, m: Tensor, valid: Tensor) -> Tensor:  # noqa: ARG002
        """(batch, tokens, width), same out."""
        return self.scale(self.normalise(x), self.weight, c)


class _SketchedNorm(nn.Cell):
    def __init__(self, scale: nn.Cell, normalise: nn.Cell, weight: Parameter, u: Parameter) -> None:
        super().__init__()
        self.scale, self.normalise = scale, normalise
        self.weight, self.u = weight, u

    def construct(self, x: Tensor, c: Tensor, m: Tensor, valid: Tensor) -> Tensor:  # noqa: ARG002
        return self.scale(self.normalise(x), self.weight, self.u, c)


class GhostOperators:
    """Operators of a measuring decoder. `signs` makes the random projections, None for none."""

    def __init__(self, eps: float, signs: Signs | None = None) -> None:
        self.signs = signs
        self.normalise = Normalise(eps)
        if signs is None:
            self.product, self.scale, self.shift = _LinearOp(), _ScaleOp(), _ShiftOp()
        else:
            self.product, self.scale, self.shift = _SketchedLinearOp(), _SketchedScaleOp(), _SketchedShiftOp()

    def linear(self, name: str, weight: Parameter, bias: Parameter | None) -> nn.Cell:
        """A linear layer that sends its squared gradient norm down the channel."""
        if self.signs is None:
            return _GhostLinear(self.product, self.shift, weight, bias)
        u, v = self._pair(f"{name}.weight", weight.shape[0], weight.shape[1])
        bias_u = None if bias is None else self._pair(f"{name}.bias", bias.shape[0], 1)[0]
        return _SketchedLinear(self.product, self.shift, weight, bias, (u, v, bias_u))

    def norm(self, name: str, weight: Parameter) -> nn.Cell:
        """A norm that does the same."""
        if self.signs is None:
            return _GhostNorm(self.scale, self.normalise, weight)
        u, _ = self._pair(f"{name}.weight", weight.shape[0], 1)
        return _SketchedNorm(self.scale, self.normalise, weight, u)

    def _pair(self, name: str, rows: int, columns: int) -> tuple[Parameter, Parameter]:
        assert self.signs is not None
        # The signs of torch_ghost: drawn from the name inside the body, so that both frameworks project alike.
        u, v = self.signs(name.removeprefix("model."), rows, columns)
        return sign_parameter(f"{name}.u", u), sign_parameter(f"{name}.v", v)
