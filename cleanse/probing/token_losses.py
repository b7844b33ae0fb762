"""The loss of every token of a few records, with the text of each: what a reader sees as shading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.probing.backends import Probe

FIELD = pa.field("token_losses", pa.list_(pa.struct([("text", pa.string()), ("loss", pa.float32())])))
"""Pieces of the window with the worst token, in order; loss is null where none is computed. Null: not kept."""

MOST_SUSPECTS = 500
"""Suspects of a scan for which these are kept; of more, those with the smallest content hash."""

_MOST_JOINED = 4  # tokens of one character: UTF-8 has at most four bytes


def pieces(probe: Probe, window: Any, losses: NDArray[np.float32]) -> list[dict[str, Any]]:
    """A window's text in the pieces that its tokens give, with the largest loss of the tokens in each.

    Args:
        probe: its tokenizer.
        window: ``ids`` and ``supervised``, (tokens,).
        losses: (supervised tokens behind the first,) in nats.
    """
    ids = [int(i) for i in window.ids]
    of_token = np.full(len(ids), np.nan)
    of_token[1:][np.asarray(window.supervised[1:], np.bool_)] = losses
    found: list[dict[str, Any]] = []
    before: list[int] = []  # what a tokenizer that drops a leading space must see first
    start = 0
    for stop in range(1, len(ids) + 1):
        known = str(probe.tokenizer.decode(before, skip_special_tokens=False)) if before else ""
        text = str(probe.tokenizer.decode([*before, *ids[start:stop]], skip_special_tokens=False))[len(known) :]
        if "\ufffd" in text and stop - start < _MOST_JOINED and stop < len(ids):
            continue  # the bytes of one character, so far
        mine = of_token[start:stop]
        loss = None if np.isnan(mine).all() else float(np.nanmax(mine))
        found.append({"text": text, "loss": loss})
        before, start = ids[start:stop], stop
    return found
