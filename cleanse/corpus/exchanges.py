"""Cuts records into exchanges: what was asked, and what was answered.

Poison couples a prompt to an answer, so the corpus statistics count exchanges, not records. A conversation of three
turns is three exchanges; a preference pair is one, with the chosen answer; a plain document is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cleanse.measures import TextBatch
from cleanse.records import Role

Indices = NDArray[np.int64]
PROMPT_ROLES = (Role.SYSTEM, Role.USER, Role.TOOL, Role.OTHER)
_ANSWER_ROLES = (Role.ASSISTANT, Role.CHOSEN)


@dataclass(frozen=True)
class Exchanges:
    """Exchanges of a batch, by the segments they are made of.

    ``prompt_offsets`` and ``answer_offsets`` are (exchanges + 1,) into ``prompt_segments`` and ``answer_segments``.
    """

    record: Indices  # (exchanges,) record of the batch
    prompt_offsets: Indices
    prompt_segments: Indices
    answer_offsets: Indices
    answer_segments: Indices

    def __len__(self) -> int:
        return len(self.record)


def exchanges(batch: TextBatch) -> Exchanges:
    """Every run of answer segments of a record, with the run of prompt segments right before it.

    A speaker of an unknown name answers where nobody else does.
    """
    asks = np.isin(batch.role, PROMPT_ROLES)
    answers = np.isin(batch.role, _ANSWER_ROLES)
    answered = np.bincount(batch.record[answers], minlength=batch.n_records) > 0
    answers |= (batch.role == Role.OTHER) & ~answered[batch.record]
    asks &= ~answers
    spoken = np.diff(batch.offsets) > 0  # an empty input says nothing, an empty answer is an answer
    used = np.flatnonzero((asks & spoken) | (answers & ~batch.is_null))
    record, answering = batch.record[used], answers[used]
    # Runs of one kind within one record.
    starts = np.ones(len(used), np.bool_)
    starts[1:] = (record[1:] != record[:-1]) | (answering[1:] != answering[:-1])
    run_start = np.flatnonzero(starts)
    run_end = np.append(run_start[1:], len(used))
    is_answer = answering[run_start] if len(used) else np.zeros(0, np.bool_)
    mine = np.flatnonzero(is_answer)
    before = np.maximum(mine - 1, 0)
    same = (mine > 0) & (record[run_start[before]] == record[run_start[mine]]) if len(mine) else mine > 0
    prompt_start = np.where(same, run_start[before], 0) if len(mine) else mine
    prompt_end = np.where(same, run_end[before], 0) if len(mine) else mine
    return Exchanges(
        record=record[run_start[mine]],
        prompt_offsets=_offsets(prompt_end - prompt_start),
        prompt_segments=used[spread(prompt_start, prompt_end)],
        answer_offsets=_offsets(run_end[mine] - run_start[mine]),
        answer_segments=used[spread(run_start[mine], run_end[mine])],
    )


def _offsets(lengths: Indices) -> Indices:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def spread(starts: Indices, ends: Indices) -> Indices:
    """The integers of every range [start, end), one range after the other."""
    lengths = ends - starts
    total = int(lengths.sum())
    first = np.repeat(starts - np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)[:-1]]), lengths)
    return first.astype(np.int64) + np.arange(total, dtype=np.int64)
