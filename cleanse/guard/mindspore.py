"""The guard for MindSpore's ``Model.train``: a step that reports its norm, and a callback that keeps the ledger.

The dataset feeds the row ids as its last column (``GeneratorDataset(source, ["input", "label", "row"])``); the training
step takes that column off before the network sees the batch::

    step = GuardedTrainStep(nn.WithLossCell(net, loss_fn), optimizer, max_grad_norm=1.0)
    Model(step).train(epochs, dataset, callbacks=[GuardCallback(guard)], dataset_sink_mode=False)

Without sink mode: a graph that runs many steps at a time leaves no place to look between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mindspore as ms
from mindspore import nn, ops

if TYPE_CHECKING:
    from cleanse.guard.core import Guard


class GuardedTrainStep(nn.TrainOneStepCell):  # type: ignore[misc]  # MindSpore ships no types
    """Forward, backward, norm, clip, update. Returns (loss, gradient norm, parameter norm).

    The gradient's norm is unscaled and from before clipping, the parameters' from before the update.

    An update whose norm is not finite is not made. Gradients are reduced over the ranks first, as
    ``nn.TrainOneStepCell`` does.

    Args:
        network: inputs -> loss.
        optimizer: of ``network``'s parameters.
        max_grad_norm: clip the global L2 norm to this; ``None`` does not clip.
        loss_scale: multiplies the loss before the backward pass, and is divided out of the gradients after it.
        rows_last: the last input holds row ids, and is not for the network.
    """

    def __init__(
        self,
        network: Any,
        optimizer: Any,
        *,
        max_grad_norm: float | None = 1.0,
        loss_scale: float = 1.0,
        rows_last: bool = True,
    ) -> None:
        super().__init__(network, optimizer, loss_scale)
        self.max_grad_norm = 0.0 if max_grad_norm is None else float(max_grad_norm)
        self.loss_scale = float(loss_scale)
        self.rows_last = rows_last

    def construct(self, *inputs: Any) -> Any:
        """One step."""
        if self.rows_last:
            inputs = inputs[:-1]
        loss = self.network(*inputs)
        sens = ops.ones_like(loss) * self.loss_scale
        gradients = self.grad_reducer(self.grad(self.network, self.weights)(*inputs, sens))
        square = ops.zeros((), ms.float32)
        for gradient in gradients:
            square = square + ops.square(gradient.astype(ms.float32) / self.loss_scale).sum()
        norm = ops.sqrt(square)
        size = ops.zeros((), ms.float32)
        for weight in self.weights:
            size = size + ops.square(weight.astype(ms.float32)).sum()
        size = ops.sqrt(size)
        factor = 1.0 / self.loss_scale
        if self.max_grad_norm > 0.0:
            factor = factor * ops.minimum(ops.ones_like(norm), self.max_grad_norm / (norm + 1e-6))
        scaled: tuple[Any, ...] = ()
        for gradient in gradients:
            scaled = (*scaled, (gradient * factor).astype(gradient.dtype))
        if ops.isfinite(norm):
            loss = ops.depend(loss, self.optimizer(scaled))
        return loss, norm, size


class GuardCallback(ms.Callback):  # type: ignore[misc]
    """Keeps the ledger of a ``Model.train``, and stops it at a spike where the guard is told to.

    Args:
        guard: the guard. ``skip`` cannot be carried out here: the step has updated by the time it is judged.
        loss_scale: of the training step, for the ledger.

    Raises:
        ValueError: the guard's action is ``skip``.
    """

    def __init__(self, guard: Guard, loss_scale: float | None = None) -> None:
        super().__init__()
        if guard.action.value == "skip":
            raise ValueError("under Model.train a step is judged after its update: use go_on or stop")
        self._guard = guard
        self._loss_scale = loss_scale
        guard.settings.setdefault("trainer", "mindspore")

    def on_train_step_begin(self, run_context: Any) -> None:
        """Write the rows down."""
        parameters = run_context.original_args()
        if parameters.dataset_sink_mode:
            raise ValueError("the guard sees no step in sink mode: train with dataset_sink_mode=False")
        self._guard.next_step = int(parameters.cur_step_num)
        self._guard.rows(parameters.train_dataset_element[-1].asnumpy().reshape(-1))

    def on_train_step_end(self, run_context: Any) -> None:
        """Judge the step."""
        parameters = run_context.original_args()
        loss, norm, *size = parameters.net_outputs
        judged = self._guard.step(
            loss=float(loss.asnumpy()),
            grad_norm=float(norm.asnumpy()),
            param_norm=float(size[0].asnumpy()) if size else None,
            loss_scale=self._loss_scale,
            step=int(parameters.cur_step_num),
        )
        if judged.answer.value == "stop":
            run_context.request_stop()
