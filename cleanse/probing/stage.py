"""The probe as a stage between the passes of a scan: draw, measure, judge, tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cleanse import findings
from cleanse.atomic import committed
from cleanse.config import ScanConfig
from cleanse.evidence import Between, run_all
from cleanse.facts import Corpus
from cleanse.probing import measure, sample, token_losses
from cleanse.probing.half import half_run
from cleanse.probing.judge import Judgement, judge, levels
from cleanse.probing.settings import ProbeSettings
from cleanse.probing.telling import probe_table, told
from cleanse.rulepacks import RuleSet
from cleanse.state import RunState
from cleanse.units import Unit

ACCOUNT = "probe.json"
AUTO_BYTES = 400_000
"""Input below which ``auto`` measures everything: with the embedded model well under a minute on any processor.

A bound in bytes and not in seconds, so that the same corpus gets the same verdicts on every machine."""


class ProbeStage:
    """Replays suspects beside controls, or everything, and quarantines what spikes."""

    name = "probe"

    def __init__(self, config: ScanConfig, settings: ProbeSettings, rules: RuleSet) -> None:
        self._config = config
        self._settings = settings
        self._rules = rules

    def gather(self, between: Between) -> None:
        """Commits the probe's findings for all units, OUT/probe.parquet, and its account for the summary.

        Raises CleanseError when the model, the framework or the device is not to be had.
        """
        if between.state.files.has(between.state.folder / ACCOUNT):
            return
        everything = self._everything(between.corpus)
        n_suspects = sample.count_suspects(between.state, between.units, between.found)
        if not everything and not n_suspects:
            self._nothing_to_do(between)
            return
        level, _ = levels(self._settings.budget, between.corpus.n_read, n_suspects, everything=everything)
        wanted = between.corpus.n_read if everything else self._settings.controls_wanted(level)
        self._sample(between, min(1.0, wanted / max(between.corpus.n_read, 1)))
        measured = self._measure(between)
        judgement = judge(measured, n_read=between.corpus.n_read, budget=self._settings.budget, everything=everything)
        self._tell(between, measured, judgement, everything=everything)

    def account(self, state: RunState) -> dict[str, Any] | None:
        """What summary.json says about the probe; None before it has run."""
        return state.known(ACCOUNT)

    def _everything(self, corpus: Corpus) -> bool:
        if self._settings.scope == "auto":
            return self._settings.model == "embedded" and corpus.n_bytes <= AUTO_BYTES
        return self._settings.scope == "all"

    def _nothing_to_do(self, between: Between) -> None:
        for unit in between.units:
            _commit_findings(between.state, unit, [])
        account = {"probed": 0, "suspects": 0, "controls": 0, "convicted": 0, "notes": ["nothing suspects any record"]}
        between.state.remember(ACCOUNT, account)

    def _sample(self, between: Between, share: float) -> None:
        run_all(
            between,
            (
                sample.sampling(
                    sample.SampleTask(
                        unit=unit,
                        formats=tuple(between.formats[shard.source.index] for shard in unit.shards),
                        found=between.found,
                        share=share,
                        packs=self._config.packs,
                        rules_fingerprint=self._rules.fingerprint,
                        read=self._config.read,
                        folder=between.state.folder,
                    )
                )
                for unit in between.units
            ),
        )

    def _measure(self, between: Between) -> pa.Table:
        state, units = between.state, between.units
        drawn = [
            pq.read_table(path, columns=["suspect"]).column(0).to_numpy(zero_copy_only=False)
            for path in state.files.each(state.path(sample.STAGE, unit.index, ".parquet") for unit in units)
        ]
        n_suspects = sum(int(np.count_nonzero(suspect)) for suspect in drawn)
        shaded = min(1.0, token_losses.MOST_SUSPECTS / max(n_suspects, 1))
        controls = np.cumsum([np.count_nonzero(~suspect) for suspect in drawn])
        n_units = min(len(units), int(np.searchsorted(controls, measure.BASELINE_RECORDS)) + 1)
        tasks: list[measure.MeasureTask] = []
        for unit, suspect in zip(units, drawn, strict=True):
            for start in range(0, len(suspect), measure.CHUNK):
                stop = min(start + measure.CHUNK, len(suspect))
                tasks.append(
                    measure.MeasureTask(len(tasks), unit, start, stop, self._settings, n_units, state.folder, shaded)
                )
        run_all(between, map(measure.measuring, tasks))
        measured = state.files.each(state.path(measure.STAGE, task.chunk, ".parquet") for task in tasks)
        return pa.concat_tables([measure.SCHEMA.empty_table(), *(pq.read_table(path) for path in measured)])

    def _tell(self, between: Between, measured: pa.Table, judgement: Judgement, *, everything: bool) -> None:
        state = between.state
        names = {shard.index: shard.source.name for shard in between.plan.shards}
        shards = measured.column("shard").to_numpy()
        rows = measured.column("row").to_numpy() + np.asarray(between.corpus.offsets, np.int64)[shards]
        table = probe_table(measured, judgement, names, rows, self._settings)
        with committed(state.out / "probe.parquet") as temporary:
            pq.write_table(table, temporary, compression="zstd")
        state.files.send(state.out / "probe.parquet")
        half = half_run(measured, self._settings.loss_scale) if self._settings.fp16 else None
        found = told(self._rules, measured, judgement, names, table, half.found if half else ())
        for unit in between.units:
            mine = {shard.index for shard in unit.shards}
            _commit_findings(state, unit, [pair for pair in found if pair[0] in mine])
        suspect = measured.column("suspect").to_numpy()
        account = {
            **{k: v for k, v in self._settings.identity().items() if k != "trust_remote_code"},
            "scope": "all" if everything else "suspects",
            "probed": measured.num_rows,
            "suspects": int(suspect.sum()),
            "controls": int((~suspect).sum()),
            "convicted": int(judgement.convicted.sum()),
            "convicted_suspects": int((judgement.convicted & suspect).sum()),
            "level_suspects": judgement.level_suspects,
            "level_others": judgement.level_others,
            "smallest_p": max((c.smallest_p for c in judgement.calibrations), default=None),
            "problems": sum(problem != "" for problem in measured.column("problem").to_pylist()),
            "median_safe_loss_scale": half.median_safe_scale if half and half.median_safe_scale > 0 else None,
            "notes": [*judgement.notes, *(half.notes if half else ())],
        }
        state.remember(ACCOUNT, account)


def _commit_findings(state: RunState, unit: Unit, found: list[tuple[int, Any]]) -> None:
    """Writes (shard, finding) pairs of one unit, by shard and row."""
    ordered = sorted(found, key=lambda pair: (pair[0], pair[1].row))
    table = findings.table([finding for _, finding in ordered])
    shard = pa.array(np.fromiter((shard for shard, _ in ordered), np.int32, len(ordered)))
    path = state.path(ProbeStage.name, unit.index, ".parquet")
    with committed(path) as temporary:
        pq.write_table(table.add_column(0, findings.SHARD, shard), temporary)
    state.files.send(path)
