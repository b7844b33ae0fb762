"""The largest absolute number at every module's input and output, and in the gradients: what fp16 has to hold.

The side channel `m` (modules, batch, 2) has one slot per watched place, because maxima do not add up as norms do. The
gradient that a slot receives is the record's largest absolute value there, and the largest absolute gradient.

Outputs alone are not enough: the product inside an MLP can overflow before `down_proj`, with every output finite until
then. So inputs are watched too.
"""

from __future__ import annotations

from mindspore import Parameter, Tensor, nn, ops

from .mindspore_decoder import Operators


def record_amax(x: Tensor, valid: Tensor) -> Tensor:
    """Largest absolute value of each record at its real tokens, (batch,).

    x is (batch, tokens, width), valid (batch, tokens). Padding is no part of the record, yet it has activations.
    """
    # ops.amax, not x.max(1): that returns a pair, and does not compile in graph mode
    each = ops.amax(ops.abs(x), -1)
    return ops.amax(ops.select(valid > 0, each, ops.zeros_like(each)), -1)


class _WatchOp(nn.Cell):
    def __init__(self, gradient: bool) -> None:
        super().__init__()
        self.gradient = gradient

    def construct(self, x: Tensor, slot: Tensor, valid: Tensor) -> Tensor:  # noqa: ARG002
        return x * 1.0  # an identity that the graph compiler keeps, and with it this bprop

    def bprop(self, x: Tensor, slot: Tensor, valid: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG002
        value = record_amax(x, valid)
        gradient = record_amax(dout, valid) if self.gradient else ops.zeros_like(value)
        return dout, ops.stack((value, gradient), 1), ops.zeros_like(valid)


class _Watch(nn.Cell):
    """Passes (batch, tokens, width) through and fills one slot of `m`."""

    def __init__(self, slot: int, gradient: bool) -> None:
        super().__init__()
        self.slot = slot
        self.op = _WatchOp(gradient)

    def construct(self, x: Tensor, m: Tensor, valid: Tensor) -> Tensor:
        """`x`."""
        return self.op(x, m[self.slot], valid)


class _Watched(nn.Cell):
    """A module with a watch on its input and on its output."""

    def __init__(self, inner: nn.Cell, slot: int) -> None:
        super().__init__()
        self.before = _Watch(slot, gradient=False)
        self.inner = inner
        self.after = _Watch(slot + 1, gradient=True)

    def construct(self, x: Tensor, c: Tensor, m: Tensor, valid: Tensor) -> Tensor:
        """Whatever the module returns."""
        return self.after(self.inner(self.before(x, m, valid), c, m, valid), m, valid)


class WatchingOperators:
    """Wraps other operators; `places` names the slots of the channel in order."""

    def __init__(self, operators: Operators) -> None:
        self.operators = operators
        self.places: list[str] = []

    def _slots(self, *places: str) -> int:
        self.places.extend(places)
        return len(self.places) - len(places)

    def linear(self, name: str, weight: Parameter, bias: Parameter | None) -> nn.Cell:
        """A watched linear layer."""
        return _Watched(self.operators.linear(name, weight, bias), self._slots(f"{name} input", f"{name} output"))

    def norm(self, name: str, weight: Parameter) -> nn.Cell:
        """A watched norm: its input is the residual stream."""
        return _Watched(self.operators.norm(name, weight), self._slots(f"{name} input", f"{name} output"))
