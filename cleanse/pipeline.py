"""The spine of a scan. Everything is bounded by a block of records; whatever is done once is not done again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from cleanse import assembly, inputs, inspection, splitting
from cleanse.atomic import read_json
from cleanse.config import ScanConfig
from cleanse.engines.choosing import engine_of
from cleanse.engines.job import Engine
from cleanse.errors import NoRecordsError
from cleanse.evidence import Between, Evidence
from cleanse.facts import Corpus, merge
from cleanse.formats import Format
from cleanse.formats_of import detect_formats
from cleanse.progress import Progress, Silent
from cleanse.records import EventKind
from cleanse.reviewing.allow import AllowList
from cleanse.rulepacks import RuleSet, load_packs
from cleanse.sources import Plan, plan
from cleanse.state import RunState
from cleanse.storage.spooled import shared
from cleanse.summary import ScanResult, load_result, summarise
from cleanse.units import Unit, group
from cleanse.verdicts import Policy


def scan(config: ScanConfig, progress: Progress | None = None, evidence: Sequence[Evidence] = ()) -> ScanResult:
    """Parts a corpus into clean and quarantine.

    Args:
        config: what to read, by which rules, and where to write.
        progress: told about stages and records as they go by.
        evidence: stages that look at suspects or across records, between the two passes.

    Raises:
        CleanseError: the run cannot go on; the message says what to do, and the same command continues it.
        SourceError, FormatError, PackError: an input, its columns, or a rule pack is not usable.
    """
    progress = progress or Silent()
    rules = load_packs(config.packs)
    tokens = inspection.context_of(config.tokens) if config.tokens else None
    for warning in tokens.warnings if tokens else ():
        progress.remark(warning)
    allow = AllowList.read(config.allow)
    identity = config.identity(rules.fingerprint, tokens.fingerprint if tokens else None, allow.digest)
    with RunState(config.out, identity, config.url) as state:
        if state.finished:
            state.check_pinned()
            state.tidy()
            _report(state, progress)
            return load_result(config.out, already_done=True, url=config.url)
        allow.write(state.folder / splitting.ALLOW)
        state.files.send(state.folder / splitting.ALLOW)
        run = _Run(config, rules, state, progress)
        stages = [*evidence, *_stages(config, rules)]
        with engine_of(config) as workers:
            workers.check_folder(None if config.url else state.folder, [source.path for source in run.plan.sources])
            engine = state.files.engine(workers)
            with run.stage("inspect"):
                run.inspect(engine)
            corpus = run.corpus()
            found = [inspection.STAGE]
            for stage in stages:
                with run.stage(stage.name):
                    stage.gather(
                        Between(run.plan, run.formats, run.units, corpus, state, engine, progress.advance, tuple(found))
                    )
                found.append(stage.name)
            with run.stage("split"):
                run.split(engine, corpus, found)
        with run.stage("assemble"):
            assembly.assemble(state, run.units, corpus, config)
            pa.default_memory_pool().release_unused()  # else it stays with this process while the page is made
        accounts = {stage.name: stage.account(state) for stage in stages}
        result = summarise(
            state, run.plan, run.units, run.formats, corpus, actions=run.actions, seconds=run.seconds, evidence=accounts
        )
        _report(state, progress)
        return result


def _report(state: RunState, progress: Progress) -> None:
    """Writes the page for people, unless it is there."""
    from cleanse.report import FILE, copies, write_report  # noqa: PLC0415 - templates, needed at the very end only

    page = state.out / FILE
    if state.files.has(page):
        return
    progress.stage("report")
    if not copies.fetch(state.files, state.out):
        progress.remark(
            f"quarantine/ is too large to be copied for {FILE}: copy the output and run cleanse report on it"
        )
        return
    write_report(state.out, place=state.place)
    state.files.send(page)


def _stages(config: ScanConfig, rules: RuleSet) -> Iterator[Evidence]:
    """The witnesses that were asked for, each imported only then."""
    if config.corpus:
        from cleanse.corpus.stage import CorpusStage, Witness  # noqa: PLC0415
        from cleanse.corpus.telling import Dedup  # noqa: PLC0415

        witness: Witness | None = None
        if config.probe:
            from cleanse.probing.phrase_witness import PhraseWitness  # noqa: PLC0415

            witness = PhraseWitness(config.probe, config.read)
        yield CorpusStage(config.read, config.packs, rules.fingerprint, Dedup(config.dedup), witness)
    if config.probe:
        from cleanse.probing.stage import ProbeStage  # noqa: PLC0415

        yield ProbeStage(config, config.probe, rules)


class _Run:
    """One scan's plan and its two passes."""

    def __init__(self, config: ScanConfig, rules: RuleSet, state: RunState, progress: Progress) -> None:
        self.config, self.rules, self.state, self.progress = config, rules, state, progress
        self.seconds: dict[str, float] = {}
        self.actions = {rule.id: rule.action.value for rule in rules.rules}
        with self.stage("plan"):
            self.plan: Plan = plan(config.inputs, config.read, state.spool, config.url or str(config.out))
            resumed = state.resumed
            state.pin_inputs([inputs.identity(source, state.spool) for source in self.plan.sources])
            self.plan = shared(self.plan, state.files, config.out, config.url)
            self.formats: tuple[Format | None, ...] = detect_formats(self.plan, config)
            self.units = group(self.plan.shards, config.read.shard_bytes)
        progress.planned(self.plan, self.formats, resumed=resumed)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.progress.stage(name)
        began = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - began, 3)

    def inspect(self, engine: Engine) -> None:
        jobs = [
            inputs.hashing(inputs.HashTask(source, self.state.folder))
            for source in self.plan.sources
            if not self.state.files.has(self.state.path(inputs.STAGE, source.index, ".json"))
        ]
        for unit in self._undone(inspection.STAGE):
            formats = tuple(self.formats[shard.source.index] for shard in unit.shards)
            task = inspection.InspectTask(
                unit=unit,
                formats=formats,
                packs=self.config.packs,
                rules_fingerprint=self.rules.fingerprint,
                tokens=self.config.tokens,
                repair=self.config.repair,
                read=self.config.read,
                folder=self.state.folder,
            )
            jobs.append(inspection.inspecting(task))
        for _ in engine.run(jobs, self.progress.advance):
            pass

    def corpus(self) -> Corpus:
        committed = self.state.files.each(self.state.path(inspection.STAGE, unit.index, ".json") for unit in self.units)
        corpus = merge(self.plan, (shard for path in committed for shard in read_json(path)))
        if corpus.n_read == 0:
            names = ", ".join(source.name for source in self.plan.sources[:3])
            broken = [e for events in corpus.file_events for e in events if e.kind is EventKind.READ_ERROR]
            if broken:
                raise NoRecordsError(f"no records in {names}: it cannot be read: {broken[0].detail}")
            raise NoRecordsError(f"no records in {names}: the input is empty" + " or blank" * (corpus.n_blank > 0))
        self.state.remember(splitting.TYPES, corpus.types.to_json())
        return corpus

    def split(self, engine: Engine, corpus: Corpus, evidence: list[str]) -> None:
        jobs = []
        for unit in self._undone(splitting.STAGE):
            shards = [shard.index for shard in unit.shards]
            task = splitting.SplitTask(
                unit=unit,
                offsets=tuple(corpus.offsets[i] for i in shards),
                file_events=tuple(corpus.file_events[i] for i in shards),
                formats=tuple(self.formats[shard.source.index] for shard in unit.shards),
                evidence=tuple(evidence),
                policy=Policy(hold_suspects=self.config.suspects == "quarantine", repair=self.config.repair),
                emit=self.config.emit,
                packs=self.config.packs,
                rules_fingerprint=self.rules.fingerprint,
                read=self.config.read,
                folder=self.state.folder,
            )
            jobs.append(splitting.splitting(task))
        for _ in engine.run(jobs, self.progress.advance):
            pass

    def _undone(self, stage: str) -> list[Unit]:
        """Units whose facts are not committed yet; the others count as progress already made."""
        undone = [unit for unit in self.units if not self.state.files.has(self.state.path(stage, unit.index, ".json"))]
        self.progress.resume_at(len(self.units) - len(undone), len(self.units))
        return undone
