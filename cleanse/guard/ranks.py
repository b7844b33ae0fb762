"""What this process is among its ranks, and how they agree: a decision of rank 0 alone would miss the others."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

AnyRank = Callable[[bool], bool]
"""Whether any rank says yes. Called by every rank at every step, or by none."""


def rank_from_environment() -> tuple[int, int]:
    """(rank, world size), as torchrun, accelerate, deepspeed and msrun set them; (0, 1) outside of them."""
    for rank, size in (
        ("RANK", "WORLD_SIZE"),
        ("RANK_ID", "RANK_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ):
        if os.environ.get(rank, "").isdigit() and os.environ.get(size, "").isdigit():
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def torch_any_rank(yes: bool) -> bool:
    """``AnyRank`` over torch.distributed, where it is in use: one small all-reduce."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return yes
    device = torch.device("cpu")
    if torch.distributed.get_backend() == "nccl":
        device = torch.device("cuda", torch.cuda.current_device())
    elif torch.distributed.get_backend() == "hccl":
        device = torch.device("npu", torch.npu.current_device())
    flag = torch.tensor([1 if yes else 0], device=device)
    torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return bool(flag.item())
