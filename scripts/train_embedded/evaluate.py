"""Loss per language and source on the held-out records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from cleanse.probes.decoder import Decoder
from numpy.typing import NDArray
from torch.nn import functional

from .packing import TokenStore
from .vocabulary import EOS_ID, PAD_ID

#: Held-out pieces per group; the standard error of a group's mean is then about 0.1 nats.
PIECES = 16


class GroupLoss(NamedTuple):
    """Means over the tokens of one group, in nats; `bytes_per_token` turns the loss into nats per byte."""

    group: str
    tokens: int
    loss: float
    unigram: float
    bytes_per_token: float


@torch.no_grad()
def held_out_losses(model: Decoder, store: TokenStore, counts: NDArray[np.uint32]) -> list[GroupLoss]:
    """One row per group that has held-out records, each read alone behind one EOS."""
    surprisal = -np.log((counts + 0.5) / (counts + 0.5).sum())
    rows = []
    for group, name in enumerate(store.names):
        members = np.flatnonzero((store.group == group) & store.held_out)[:PIECES]
        pieces = [store.piece(int(i)) for i in members]
        if not pieces:
            continue
        losses = _token_losses(model, pieces)
        tokens = sum(len(piece) for piece in pieces)
        rows.append(
            GroupLoss(
                group=name,
                tokens=tokens,
                loss=float(sum(x.sum() for x in losses)) / tokens,
                unigram=float(sum(surprisal[piece].sum() for piece in pieces)) / tokens,
                bytes_per_token=float(store.n_bytes[members].sum()) / tokens,
            )
        )
    return rows


def _token_losses(model: Decoder, pieces: Sequence[NDArray[np.uint16]], batch: int = 8) -> list[NDArray[np.float32]]:
    out: list[NDArray[np.float32]] = []
    for at in range(0, len(pieces), batch):
        some = pieces[at : at + batch]
        ids = torch.full((len(some), 1 + max(len(piece) for piece in some)), PAD_ID)
        ids[:, 0] = EOS_ID
        for i, piece in enumerate(some):
            ids[i, 1 : 1 + len(piece)] = torch.from_numpy(piece.astype(np.int64))
        logits = model(ids[:, :-1])
        losses = functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none").view(
            len(some), -1
        )
        out += [losses[i, : len(piece)].numpy() for i, piece in enumerate(some)]
    return out
