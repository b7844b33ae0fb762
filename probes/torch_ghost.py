"""Exact per-sample gradient norms without weight gradients.

Hooks turn each layer's input and output gradient into a squared norm while the backward pass runs.

All parameters are frozen and only the embedding's output requires a gradient, so the backward pass never forms a
product for a weight: that is why this is cheaper than a training step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .sketching import SignVectors
from .torch_anatomy import Anatomy, NoGhostRuleError
from .torch_local_vmap import module_grads, own_trainable
from .torch_norms import normalised_input
from .torch_rules import bias_grad, embedding_norm2, gain_grad, gram, gram_is_cheaper, linear_norm2


def _is_plain_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward


def _is_conv1d(module: nn.Module) -> bool:
    """GPT-2's linear layer, whose weight is (inputs, outputs)."""
    return type(module).__name__ == "Conv1D" and type(module).__module__.startswith("transformers.")


@dataclass
class GhostHooks:
    """Collects squared norms (and sketches) of every trained module in the body during one backward pass.

    Use `open`, then per batch `begin`, forward, backward, and read `norm2` and `sketch`; `close` removes the hooks.
    """

    anatomy: Anatomy
    signs: SignVectors | None = None
    norm2: Tensor = field(init=False)
    sketch: Tensor | None = field(init=False, default=None)
    embedded: Tensor = field(init=False)

    def open(self) -> None:
        """Puts hooks on the embedding and on every module that holds trained parameters.

        Raises NoGhostRuleError where a parameter is held by two modules, or by none in the body.
        """
        self._handles: list[RemovableHandle] = []
        self._names: dict[nn.Module, str] = {}
        self._norms: dict[nn.Module, bool] = {}
        self._seen: set[nn.Module] = set()
        self._gram: tuple[Tensor, Tensor] | None = None
        self._ids_trained = {id(p) for p in self.anatomy.trainable.values()}
        try:
            self._hook_modules()
        except NoGhostRuleError:
            self.close()
            raise

    def _hook_modules(self) -> None:
        covered = {id(self.anatomy.embedding.weight), id(self.anatomy.head.weight)}
        if self.anatomy.head.bias is not None:
            covered.add(id(self.anatomy.head.bias))
        self._handles.append(self.anatomy.embedding.register_forward_hook(self._on_embedding))
        for name, module in self.anatomy.body.named_modules():
            held = {id(p) for p in module.parameters(recurse=False)} & self._ids_trained
            if not held or module is self.anatomy.embedding:
                continue
            if covered & held:
                raise NoGhostRuleError(f"{name}: shares a parameter with another module")
            covered |= held
            self._names[module] = name.removeprefix("inner.")  # signs are drawn from what both frameworks call it
            self._handles.append(module.register_forward_hook(self._on_module, with_kwargs=True))
        missing = [n for n, p in self.anatomy.trainable.items() if id(p) not in covered]
        if missing:
            raise NoGhostRuleError(f"trained parameters outside the body: {', '.join(missing[:3])}")

    def close(self) -> None:
        """Removes all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def begin(self, records: int, device: torch.device) -> None:
        """Empties the sums before a batch of so many records."""
        self._records = records
        self._seen.clear()
        self._gram = None
        # Layers of very different size are summed: float64, where the device has it.
        kind = torch.float32 if device.type in ("mps", "npu") else torch.float64
        self.norm2 = torch.zeros(records, dtype=kind, device=device)
        self.sketch = None
        if self.signs is not None:
            self.sketch = torch.zeros(records, self.signs.dimensions, device=device)

    def _on_embedding(self, module: nn.Module, _args: tuple[Any, ...], out: Tensor) -> Tensor:
        if module in self._seen:
            raise NoGhostRuleError("the embedding is used more than once")
        self._seen.add(module)
        self.embedded = out.detach().requires_grad_(torch.is_grad_enabled())
        return self.embedded

    def _on_module(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        if not torch.is_grad_enabled():
            return None
        name = self._names[module]
        if module in self._seen:
            raise NoGhostRuleError(f"{name}: used more than once in a pass")
        self._seen.add(module)
        if not isinstance(out, Tensor):
            raise NoGhostRuleError(f"{name}: a {type(module).__name__} that returns {type(out).__name__}")
        if isinstance(module, nn.Embedding):
            return self._position_embedding(module, name, args, out)
        if out.shape[0] != self._records or not out.requires_grad:
            raise NoGhostRuleError(f"{name}: the output {tuple(out.shape)} has no axis of records")
        rule = self._rule(module, name, args, kwargs, out)
        out.register_hook(rule)  # type: ignore[no-untyped-call]
        return None

    def _rule(
        self, module: nn.Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
    ) -> Callable[[Tensor], None]:
        a = args[0].detach() if args and isinstance(args[0], Tensor) else None
        batch_first = a is not None and a.dim() == out.dim() and a.shape[0] == self._records
        if a is not None and batch_first and out.dim() == 3:  # noqa: PLR2004 - records, tokens, features
            if _is_plain_linear(module) or _is_conv1d(module):
                return lambda b: self._linear(module, name, a, b)
        elif _is_plain_linear(module) or _is_conv1d(module):
            raise NoGhostRuleError(f"{name}: a linear layer on {tuple(out.shape)}")
        if a is not None and batch_first and len(args) == 1 and not kwargs and self._norms.get(module, True):
            normalised = normalised_input(module, a, out.detach(), check=module not in self._norms)
            self._norms[module] = normalised is not None
            if normalised is not None:
                return lambda b: self._norm(module, name, normalised, b)
        return lambda b: self._unknown(module, name, args, kwargs, b)

    def _add(self, norm2: Tensor) -> None:
        self.norm2 += norm2.to(self.norm2.dtype)

    def _project(self, name: str, grad: Tensor) -> None:
        """Adds the sketch of a vector gradient (records, width)."""
        if self.signs is not None and self.sketch is not None:
            u, _ = self.signs.pair(name, grad.shape[1], 1)
            self.sketch += grad @ torch.from_numpy(u).to(grad)

    @torch.no_grad()
    def _linear(self, module: nn.Module, name: str, a: Tensor, b: Tensor) -> None:
        weight, bias = module.weight, module.bias
        if id(weight) in self._ids_trained:
            gram_a = None
            if gram_is_cheaper(a.shape[1], a.shape[2], b.shape[2]):
                # Query, key and value share their input, gate and up theirs.
                if self._gram is None or self._gram[0].data_ptr() != a.data_ptr() or self._gram[0].shape != a.shape:
                    self._gram = (a, gram(a))
                gram_a = self._gram[1]
            self._add(linear_norm2(a, b, gram_a))
            if self.signs is not None and self.sketch is not None:
                u, v = (torch.from_numpy(x) for x in self.signs.pair(f"{name}.weight", b.shape[2], a.shape[2]))
                a32, b32 = a.float(), b.float()
                self.sketch += ((b32 @ u.to(b32)) * (a32 @ v.to(a32))).sum(1)
        if isinstance(bias, Tensor) and id(bias) in self._ids_trained:
            grad = bias_grad(b)
            self._add(grad.square().sum(1))
            self._project(f"{name}.bias", grad)

    @torch.no_grad()
    def _norm(self, module: nn.Module, name: str, normalised: Tensor, b: Tensor) -> None:
        if id(module.weight) in self._ids_trained:
            grad = gain_grad(normalised, b)
            self._add(grad.square().sum(1))
            self._project(f"{name}.weight", grad)
        bias = getattr(module, "bias", None)
        if isinstance(bias, Tensor) and id(bias) in self._ids_trained:
            grad = bias_grad(b)
            self._add(grad.square().sum(1))
            self._project(f"{name}.bias", grad)

    def _position_embedding(self, module: nn.Embedding, name: str, args: tuple[Any, ...], out: Tensor) -> Tensor:
        """Positions are looked up once for all records; each record gets a copy, so that gradients stay apart."""
        ids = args[0].expand(self._records, -1)
        copy = out.detach().expand(self._records, *out.shape[1:]).clone().requires_grad_()

        @torch.no_grad()
        def rule(b: Tensor) -> None:
            self._add(embedding_norm2(ids, b))
            if self.signs is not None and self.sketch is not None:
                pair = self.signs.pair(f"{name}.weight", module.num_embeddings, module.embedding_dim)
                u, v = (torch.from_numpy(x).to(b.device, torch.float32) for x in pair)
                self.sketch += (u[ids] * (b.float() @ v)).sum(1)

        copy.register_hook(rule)  # type: ignore[no-untyped-call]
        return copy

    def _unknown(self, module: nn.Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], b: Tensor) -> None:
        params = own_trainable(module, self._ids_trained)
        try:
            grads = module_grads(module, params, args, kwargs, b)
        except RuntimeError as error:
            raise NoGhostRuleError(f"{name}: no rule for {type(module).__name__}, and vmap says: {error}") from error
        for key, grad in grads.items():
            flat = grad.detach().float().flatten(1)
            self._add(flat.square().sum(1))
            self._project(f"{name}.{key}", flat)
