"""The training loop: bfloat16 compute, float32 master weights, checkpoints that a kill at any moment survives."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from cleanse.probes.decoder import Attention, Decoder
from cleanse.probes.decoder_config import DecoderConfig
from torch import Tensor

from .fused_loss import head_loss
from .muon import Muon
from .packing import RowStream
from .schedule import Schedule
from .vocabulary import VOCABULARY

CONFIG = DecoderConfig(
    vocab_size=VOCABULARY, width=256, mlp_width=512, num_layers=5, num_heads=4, num_kv_heads=2, head_dim=64
)
MUON_LR, ADAM_LR = 0.02, 3e-3
TOKENS_PER_STEP, TOKENS_PER_MICROBATCH = 8192, 4096
#: Short rows while the rate holds, for attention is a third cheaper; rows as long as the probe's during the decay.
ROW, ROW_DECAY = 256, 512


def explicit_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention with the scores written out: faster than the fused kernel's backward on short CPU rows."""
    length = q.shape[2]
    mask = torch.full((length, length), float("-inf"), dtype=q.dtype).triu(1)
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)) + mask
    return torch.matmul(scores.softmax(-1), v)


def initialise(model: Decoder, seed: int) -> None:
    """Normal(0, 0.02) everywhere, the projections back into the residual stream smaller with depth."""
    generator = torch.Generator().manual_seed(seed)
    depth = 2 * model.config.num_layers
    for name, p in model.named_parameters():
        if p.dim() > 1:
            back = name.endswith(("o_proj.weight", "down_proj.weight"))
            p.data.normal_(0, 0.02 / (depth**0.5 if back else 1.0), generator=generator)


def _is_matrix(name: str, p: Tensor) -> bool:
    """Whether Muon takes it: the body's matrices."""
    return p.dim() > 1 and "embed" not in name


@dataclass
class Trainer:
    """Everything that changes while training; `master` holds the float32 weights by name."""

    stream: RowStream
    schedule: Schedule
    checkpoint: Path
    seed: int = 0
    compiled: bool = True

    def __post_init__(self) -> None:
        Attention.attend = staticmethod(explicit_attention)
        self.step = 0
        self.tokens = 0
        self.model = Decoder(CONFIG)
        initialise(self.model, self.seed)
        self.master = {n: p.detach().clone().requires_grad_() for n, p in self.model.named_parameters()}
        self.model.bfloat16()
        matrices = [p for n, p in self.master.items() if _is_matrix(n, p)]
        rest = [p for n, p in self.master.items() if not _is_matrix(n, p)]
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon(matrices, lr=MUON_LR, weight_decay=0.05),
            torch.optim.AdamW(rest, lr=ADAM_LR, betas=(0.9, 0.98), eps=1e-10, weight_decay=0.0),
        ]
        self.body = torch.compile(self.model.model, dynamic=False) if self.compiled else self.model.model
        self._stop = False

    def save(self) -> None:
        """Writes the checkpoint beside its place and moves it there, so that a reader never sees half of one."""
        state = {
            "step": self.step,
            "tokens": self.tokens,
            "master": {n: p.detach() for n, p in self.master.items()},
            "optimizers": [o.state_dict() for o in self.optimizers],
            "stream": self.stream.state(),
        }
        part = self.checkpoint.with_suffix(".part")
        torch.save(state, part)
        part.replace(self.checkpoint)

    def resume(self) -> bool:
        """Continues from the checkpoint; False where there is none."""
        if not self.checkpoint.exists():
            return False
        # Our own file, holding numpy and generator state as well.
        state: dict[str, Any] = torch.load(self.checkpoint, weights_only=False)
        self.step, self.tokens = state["step"], state["tokens"]
        for name, p in self.master.items():
            p.data.copy_(state["master"][name])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.stream.restore(state["stream"])
        self._publish()
        return True

    def _publish(self) -> None:
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                p.copy_(self.master[name])

    def _one_step(self, factor: float, row: int) -> float:
        rows = torch.from_numpy(self.stream.rows(TOKENS_PER_STEP // row, row + 1))
        micro = TOKENS_PER_MICROBATCH // row
        total = 0.0
        for ids in torch.split(rows, micro):
            hidden = self.body(self.model.model.embed_tokens(ids[:, :-1]))
            loss = head_loss(hidden.reshape(-1, CONFIG.width), self.model.lm_head.weight, ids[:, 1:].reshape(-1)) * (
                len(ids) / len(rows)
            )
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        for name, p in self.model.named_parameters():
            self.master[name].grad = p.grad.float() if p.grad is not None else None
            p.grad = None
        for optimizer, peak in zip(self.optimizers, (MUON_LR, ADAM_LR), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * factor
            optimizer.step()
        self._publish()
        self.step += 1
        self.tokens += rows.shape[0] * row
        return total

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop = True

    def run(self, log_every: int = 20, save_seconds: float = 180) -> None:
        """Trains until the schedule ends, SIGTERM or SIGINT; a checkpoint is there afterwards in every case."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        begun, tokens_before, saved = time.time(), self.tokens, time.time()
        recent: list[float] = []
        while not self._stop and (factor := self.schedule.factor(self.step, time.time())) > 0:
            row = ROW_DECAY if self.schedule.decaying(time.time()) else ROW
            recent.append(self._one_step(factor, row))
            if self.step % log_every == 0:
                rate = (self.tokens - tokens_before) / (time.time() - begun)
                stamp = time.strftime("%H:%M:%S", time.gmtime())
                mean = sum(recent) / len(recent)
                print(
                    f"{stamp} step {self.step} tokens {self.tokens / 1e6:.2f}M loss {mean:.4f} "
                    f"lr x{factor:.3f} {rate:.0f} tok/s",
                    flush=True,
                )
                recent.clear()
            if time.time() - saved > save_seconds:
                self.save()
                saved = time.time()
        self.save()
