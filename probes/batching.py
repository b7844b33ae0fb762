"""Length buckets: batches that waste little on padding and depend only on the records. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .types import Ids, Mask, ProbeRecord

#: A batch is closed when its longest record would be this much longer than its shortest, beyond 16 tokens.
STRETCH = 1.25
SLACK = 16
#: More records in one batch than this gain nothing.
MAX_RECORDS = 256


def plan_batches(records: Sequence[ProbeRecord], token_budget: int) -> list[list[int]]:
    """Indices of the records, batch by batch, sorted by length, then by place.

    A batch has at most `token_budget` tokens with its padding, or is a single record. Records without a supervised
    token are in no batch.
    """
    order = sorted((i for i, record in enumerate(records) if record.n_tokens), key=lambda i: (len(records[i].ids), i))
    batches: list[list[int]] = []
    for i in order:
        length = len(records[i].ids)
        if batches:
            batch = batches[-1]
            shortest = len(records[batch[0]].ids)
            fits = (len(batch) + 1) * length <= token_budget and len(batch) < MAX_RECORDS
            if fits and length <= STRETCH * shortest + SLACK:
                batch.append(i)
                continue
        batches.append([i])
    return batches


def pad_batch(records: Sequence[ProbeRecord], pad_id: int) -> tuple[Ids, Mask, NDArray[np.int64]]:
    """Pads on the right: ids (records, tokens), supervised (records, tokens), lengths (records,).

    Right padding without an attention mask is exact for causal models. The first token is never supervised.
    """
    lengths = np.array([len(record.ids) for record in records], dtype=np.int64)
    ids = np.full((len(records), int(lengths.max())), pad_id, dtype=np.int64)
    supervised = np.zeros(ids.shape, dtype=np.bool_)
    for i, record in enumerate(records):
        ids[i, : lengths[i]] = record.ids
        supervised[i, 1 : lengths[i]] = record.supervised[1:]
    return ids, supervised, lengths
