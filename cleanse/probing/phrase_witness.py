"""A model as a witness about phrases that counting could only list."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cleanse.atomic import read_json, write_json
from cleanse.corpus import samples
from cleanse.corpus.evidence import CorpusEvidence
from cleanse.corpus.hearing import MOST_HEARD, Hearing
from cleanse.engines.job import Job, Report
from cleanse.evidence import Between
from cleanse.probing import phrase_texts
from cleanse.probing.backends import backend
from cleanse.probing.measure import loaded
from cleanse.probing.phrase_readings import Segments, ask
from cleanse.probing.phrase_texts import TextsTask
from cleanse.probing.settings import ProbeSettings
from cleanse.sources import ReadOptions
from cleanse.state import unit_path

STAGE = "phrase-heard"
MOST_READ = 64  # records of one phrase that are read with it and without it
MOST_ALIKE = 24  # of those, and of other records with the same answer, whose gradients are compared

Place = tuple[int, int]  # shard, row from its start


@dataclass(frozen=True)
class HearTask:
    """All that a worker needs to ask about one phrase."""

    number: int
    phrase: tuple[int, ...]
    suspects: tuple[Place, ...]
    fellows: tuple[Place, ...]
    units: tuple[int, ...]  # that these stand in
    settings: ProbeSettings
    folder: Path


def hear(task: HearTask, report: Report) -> None:
    """Asks about one phrase and commits the answer. Raises CleanseError when the model is not to be had."""
    read = pa.concat_tables(
        pq.read_table(unit_path(task.folder, phrase_texts.STAGE, unit, ".parquet")) for unit in task.units
    )
    records = {(r["shard"], r["row"]): r for r in read.to_pylist()}
    suspects = [records[place] for place in task.suspects]
    prompts = [[t for t, asks in zip(r["texts"], r["asks"], strict=True) if asks] for r in suspects]
    said = ask(
        loaded(task.settings, task.folder),
        backend(task.settings.backend).ProbeOptions,
        task.phrase,
        prompts,
        [_segments(r) for r in suspects[:MOST_ALIKE]],
        [_segments(records[place]) for place in task.fellows],
    )
    write_json(unit_path(task.folder, STAGE, task.number, ".json"), asdict(said))
    report(0, len(suspects), 0)


def _segments(record: Mapping[str, Any]) -> Segments:
    return list(zip(record["texts"], record["supervised"], strict=True))


class PhraseWitness:
    """Asks a model about the phrases for which its word would settle the verdict, ``MOST_HEARD`` at most."""

    def __init__(self, settings: ProbeSettings, read: ReadOptions) -> None:
        self._settings, self._read = settings, read

    def hear(self, evidence: CorpusEvidence, between: Between) -> dict[int, Hearing]:
        """What the model says, by place in ``evidence.triggers``.

        Raises CleanseError when the model, the framework or the device is not to be had.
        """
        asked = open_questions(evidence)
        drawn = [(k, *drawn_for(evidence, k)) for k in asked]
        places = [(k, _places(evidence, suspects), _places(evidence, fellows)) for k, suspects, fellows in drawn]
        everywhere = {place for _, *sides in places for side in sides for place in side}
        owner = {shard.index: unit.index for unit in between.units for shard in unit.shards}
        self._fetch(between, everywhere)
        path = between.state.path
        jobs = []
        for k, suspects, fellows in places:
            units = tuple(sorted({owner[shard] for shard, _ in (*suspects, *fellows)}))
            phrase = evidence.triggers[k].phrases[0]
            task = HearTask(k, phrase, suspects, fellows, units, self._settings, between.state.folder)
            if not path(STAGE, k, ".json").exists():
                jobs.append(Job(hear, task, f"the model's word on phrase {k + 1}"))
        for _ in between.engine.run(jobs, between.report):
            pass
        return {k: Hearing.from_json(read_json(path(STAGE, k, ".json"))) for k in asked}

    def _fetch(self, between: Between, places: set[Place]) -> None:
        wanted: dict[int, list[int]] = defaultdict(list)
        for shard, row in sorted(places):
            wanted[shard].append(row)
        jobs = []
        for unit in between.units:
            rows = {shard.index: tuple(wanted[shard.index]) for shard in unit.shards if shard.index in wanted}
            formats = tuple(between.formats[shard.source.index] for shard in unit.shards)
            task = TextsTask(unit, formats, rows, self._read, between.state.folder)
            if rows and not between.state.path(phrase_texts.STAGE, unit.index, ".parquet").exists():
                jobs.append(Job(phrase_texts.fetch_unit, task, str(unit)))
        for _ in between.engine.run(jobs, between.report):
            pass


def open_questions(evidence: CorpusEvidence) -> list[int]:
    """Places in ``evidence.triggers`` of the phrases to ask about, strongest first."""
    return [k for k, trigger in enumerate(evidence.triggers) if trigger.lacks_a_reading][:MOST_HEARD]


def drawn_for(evidence: CorpusEvidence, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Records to ask about for one phrase: its suspects, and others that share their answer."""
    fellows = evidence.shards.records_of(evidence.fellows(k, MOST_ALIKE))
    return samples.draw(evidence.suspects[k], MOST_READ), np.unique(fellows)


def _places(evidence: CorpusEvidence, records: NDArray[np.int64]) -> tuple[Place, ...]:
    shards, rows = (evidence.shards.gather(records, f"record_{name}") for name in ("shard", "row"))
    return tuple(zip(shards.tolist(), rows.tolist(), strict=True))
