"""What goes into a probe and what comes out, the same for every framework. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]

NAN = float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class ProbeRecord:
    """One record as a model reads it.

    Attributes:
        ids: Token ids, (tokens,), special tokens included.
        supervised: Which of them are targets of the loss, (tokens,). The first token can never be one.
        n_bytes: UTF-8 bytes that the supervised tokens stand for; 0 where unknown.
        truncated: Whether the record was longer than what is probed.
    """

    ids: Ids
    supervised: Mask
    n_bytes: int = 0
    truncated: bool = False

    @property
    def n_tokens(self) -> int:
        """Supervised tokens that have something before them, so that a loss exists."""
        return int(np.count_nonzero(self.supervised[1:]))


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """What a pass shall return beyond loss and gradient norm.

    Attributes:
        sketch: Dimensions of the random projection of the gradient; 0 for none.
        amax: Largest absolute activation and output gradient, for the fp16 prediction (about twice the time).
        token_losses: Keep the loss of every token in the evidence.
    """

    sketch: int = 0
    amax: bool = False
    token_losses: bool = False


@dataclass(frozen=True, slots=True)
class RawMeasures:
    """What a backend measured for one record, before any baseline is involved.

    Attributes:
        token_losses: Nats per supervised token, in order, (n_tokens,).
        grad_norm: L2 norm of the gradient of the mean loss over all trainable parameters; None where not asked for.
        sketch: Random projection of that gradient, (dimensions,).
        activation_amax: Largest absolute input or output of any module at a real token.
        grad_amax: Largest absolute gradient of the mean loss at any module's output.
        problem: Why nothing could be measured, in words; empty where all went well.
    """

    token_losses: Floats
    grad_norm: float | None = None
    sketch: Floats | None = None
    activation_amax: float = NAN
    grad_amax: float = NAN
    problem: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class RecordEvidence:
    """The measured evidence about one record.

    Losses and gains are in nats. A record without a supervised token has `n_tokens` 0 and NaN measures: that is a
    statement about the record, no error. Measures that were not asked for are NaN or None.

    Attributes:
        n_tokens: Supervised tokens the loss is a mean over.
        loss: Mean loss per supervised token.
        max_token_loss: The largest loss of one token.
        max_token_index: Where that token stands in the record's ids; -1 for none.
        context_gain: Mean of (unigram surprisal - loss): what reading the context saves per token.
        min_window_gain: The smallest such mean over 32 consecutive supervised tokens.
        nats_per_byte: Total loss over the UTF-8 bytes of the supervised text; NaN where these are unknown.
        grad_norm: Exact L2 norm of the gradient of the mean loss over all trainable parameters.
        loss_finite: Whether every token loss is finite.
        grad_finite: Whether the gradient norm is finite; True where it was not asked for.
        sketch: Random projection of the gradient, (dimensions,); inner products estimate those of the gradients.
        activation_amax: Largest absolute input or output of any module; above 65,504 fp16 overflows going forward.
        grad_amax: Largest absolute output gradient of any module, unscaled.
        safe_loss_scale: The largest power of two that keeps `grad_amax` below 65,504.
        token_losses: Loss of every supervised token.
        truncated: Whether only a part of the record was probed.
        problem: Why nothing could be measured, in words; empty where all went well.
    """

    n_tokens: int
    loss: float = NAN
    max_token_loss: float = NAN
    max_token_index: int = -1
    context_gain: float = NAN
    min_window_gain: float = NAN
    nats_per_byte: float = NAN
    grad_norm: float = NAN
    loss_finite: bool = True
    grad_finite: bool = True
    sketch: Floats | None = None
    activation_amax: float = NAN
    grad_amax: float = NAN
    safe_loss_scale: float = NAN
    token_losses: Floats | None = None
    truncated: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StepMeasures:
    """A training step without its update: the weighted sum of its records' mean losses, and that sum's gradient.

    Attributes:
        loss: Sum of weight times mean loss, nats.
        grad_norm: L2 norm of the gradient of `loss` over all trainable parameters, before any clipping.
    """

    loss: float
    grad_norm: float


@dataclass(frozen=True, slots=True)
class HalfMeasures:
    """One record alone in a precision of 16 bits, or watched in float32 for what 16 bits would do to it.

    Attributes:
        loss: Mean loss in nats, in that precision.
        grad_norm: L2 norm of the gradient of the mean loss, unscaled; not finite where a gradient overflowed.
        activation_amax: Largest absolute input or output of any module.
        grad_amax: Largest absolute gradient of weight times mean loss, unscaled: at any module's output, or of any
            linear layer's weight.
        forward_place: The first module whose input or output float16 cannot hold; empty for none.
        backward_place: The first module, from the loss backwards, whose scaled gradient it cannot hold.
    """

    loss: float
    grad_norm: float
    activation_amax: float = NAN
    grad_amax: float = NAN
    forward_place: str = ""
    backward_place: str = ""


@dataclass(frozen=True, slots=True)
class ProbeInfo:
    """What a probe is made of, for the report and `probe.parquet`.

    Attributes:
        model: Name or path as given.
        backend: "torch" or "mindspore".
        device: "cpu", "cuda:0", ...
        dtype: "float32" or "bfloat16".
        parameters: Trainable parameters the gradient norm is taken over.
        method: How gradient norms are found: "ghost" or "loop".
        notes: Anything the user should know, such as why the slower method is used.
    """

    model: str
    backend: str
    device: str
    dtype: str
    parameters: int
    method: str
    notes: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}
