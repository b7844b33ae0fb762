"""A model as a witness about phrases that counting could only list."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cleanse.atomic import read_json, write_json
from cleanse.corpus.hearing import Hearing
from cleanse.corpus.questions import MOST_ALIKE, Place, Question
from cleanse.engines.job import Job, Report
from cleanse.evidence import Between, run_all
from cleanse.probing import phrase_texts
from cleanse.probing.backends import backend
from cleanse.probing.measure import loaded
from cleanse.probing.phrase_readings import Segments, ask
from cleanse.probing.phrase_texts import TextsTask
from cleanse.probing.settings import ProbeSettings
from cleanse.sources import ReadOptions
from cleanse.state import unit_path

STAGE = "phrase-heard"


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

    def hear(self, asked: Sequence[Question], between: Between) -> dict[int, Hearing]:
        """What the model says, by place among the corpus's triggers.

        Raises CleanseError when the model, the framework or the device is not to be had.
        """
        self._fetch(between, {place for q in asked for side in (q.suspects, q.fellows) for place in side})
        owner = {shard.index: unit.index for unit in between.units for shard in unit.shards}
        run_all(between, (self._hearing(between, question, owner) for question in asked))
        answers = [between.state.path(STAGE, question.trigger, ".json") for question in asked]
        between.state.files.fetch(*answers)
        return {q.trigger: Hearing.from_json(read_json(path)) for q, path in zip(asked, answers, strict=True)}

    def _hearing(self, between: Between, question: Question, owner: Mapping[int, int]) -> Job:
        folder, k = between.state.folder, question.trigger
        units = tuple(sorted({owner[shard] for shard, _ in (*question.suspects, *question.fellows)}))
        task = HearTask(k, question.phrase, question.suspects, question.fellows, units, self._settings, folder)
        return Job(
            hear,
            task,
            f"the model's word on phrase {k + 1}",
            reads=tuple(unit_path(folder, phrase_texts.STAGE, unit, ".parquet") for unit in units),
            writes=(unit_path(folder, STAGE, k, ".json"),),
            measures=True,
        )

    def _fetch(self, between: Between, places: set[Place]) -> None:
        wanted: dict[int, list[int]] = defaultdict(list)
        for shard, row in sorted(places):
            wanted[shard].append(row)
        jobs = []
        for unit in between.units:
            rows = {shard.index: tuple(wanted[shard.index]) for shard in unit.shards if shard.index in wanted}
            formats = tuple(between.formats[shard.source.index] for shard in unit.shards)
            if rows:
                jobs.append(phrase_texts.fetching(TextsTask(unit, formats, rows, self._read, between.state.folder)))
        run_all(between, jobs)
