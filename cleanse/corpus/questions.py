"""What a second witness is asked: phrases that counting could only list, with records to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cleanse.atomic import read_json, write_json
from cleanse.corpus import samples
from cleanse.corpus.evidence import CorpusEvidence
from cleanse.corpus.hearing import MOST_HEARD

Place = tuple[int, int]
"""(shard, row from its start)."""

MOST_READ = 64  # records of one phrase that are read with it and without it
MOST_ALIKE = 24  # of those, and of other records with the same answer, whose gradients are compared


@dataclass(frozen=True)
class Question:
    """One phrase, and where it stands."""

    trigger: int  # its place among the corpus's triggers
    phrase: tuple[int, ...]  # token hashes
    suspects: tuple[Place, ...]  # records with the phrase and the answer
    fellows: tuple[Place, ...]  # others with that answer


def open_questions(evidence: CorpusEvidence) -> list[int]:
    """Places in ``evidence.triggers`` of the phrases to ask about, strongest first."""
    return [k for k, trigger in enumerate(evidence.triggers) if trigger.lacks_a_reading][:MOST_HEARD]


def drawn_for(evidence: CorpusEvidence, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Records to ask about for one phrase: its suspects, and others that share their answer."""
    fellows = evidence.shards.records_of(evidence.fellows(k, MOST_ALIKE))
    return samples.draw(evidence.suspects[k], MOST_READ), np.unique(fellows)


def questions(evidence: CorpusEvidence) -> Iterator[Question]:
    """All that is worth asking, strongest first."""
    for k in open_questions(evidence):
        suspects, fellows = (_places(evidence, records) for records in drawn_for(evidence, k))
        yield Question(k, evidence.triggers[k].phrases[0], suspects, fellows)


def _places(evidence: CorpusEvidence, records: NDArray[np.int64]) -> tuple[Place, ...]:
    shards, rows = (evidence.shards.gather(records, f"record_{name}") for name in ("shard", "row"))
    return tuple(zip(shards.tolist(), rows.tolist(), strict=True))


def write(path: Path, asked: Sequence[Question]) -> None:
    """Commits the questions as JSON."""
    write_json(path, [asdict(question) for question in asked])


def read(path: Path) -> list[Question]:
    """What ``write`` committed."""
    return [
        Question(
            values["trigger"],
            tuple(values["phrase"]),
            tuple((shard, row) for shard, row in values["suspects"]),
            tuple((shard, row) for shard, row in values["fellows"]),
        )
        for values in read_json(path)
    ]
