"""The probe beside a filter: a batch's suspects are replayed next to the batch's other records, and judged by them."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from cleanse import findings
from cleanse.blocks import RecordBlock
from cleanse.formats import Format
from cleanse.probing import sample
from cleanse.probing.backends import Probe
from cleanse.probing.half import half_run
from cleanse.probing.judge import judge, levels
from cleanse.probing.measure import BASELINE_RECORDS, baseline_windows, figures_of, open_probe
from cleanse.probing.settings import ProbeSettings
from cleanse.probing.telling import probe_table, told
from cleanse.rulepacks import RuleSet

_NAMES = {0: ""}


def witness(
    block: RecordBlock, fmt: Format, found: pa.Table, rules: RuleSet, settings: ProbeSettings
) -> tuple[pa.Table, pa.Table | None]:
    """What the probe finds in a block (``FINDINGS_SCHEMA``), and its figures (the columns of OUT/probe.parquet).

    Controls come from the same block, so the budget holds for each batch by itself, and a batch with fewer than some
    fifty unsuspected records convicts only what is not a number. No figures where nothing is suspect and the scope
    is not "all".

    Raises CleanseError when the model or the device is not to be had.
    """
    everything = settings.scope == "all"
    n_records = block.batch.num_rows + len(block.strays)
    level, _ = levels(settings.budget, n_records, sample.asking(found), everything=everything)
    share = 1.0 if everything else min(1.0, settings.controls_wanted(level) / max(n_records, 1))
    drawn = sample.draw(block, fmt, found, 0, share)
    suspect = drawn.column("suspect").to_numpy(zero_copy_only=False)
    if not everything and not suspect.any():
        return findings.table([]), None
    probe, has_own_baseline = _opened(settings)
    if not has_own_baseline:
        probe.set_baseline(baseline_windows(probe, drawn, settings, BASELINE_RECORDS))
    measured = figures_of(probe, drawn, settings)
    judgement = judge(measured, n_read=n_records, budget=settings.budget, everything=everything)
    table = probe_table(measured, judgement, _NAMES, measured.column("row").to_numpy(), settings)
    half = half_run(measured, settings.loss_scale).found if settings.fp16 else ()
    said = told(rules, measured, judgement, _NAMES, table, half)
    concluded = sorted((finding for _, finding in said), key=lambda f: f.row)
    return findings.table(concluded), table


@lru_cache(maxsize=1)
def _opened(settings: ProbeSettings) -> tuple[Probe, bool]:
    """The model, loaded once per process, and whether a unigram baseline came with it.

    Where none did, every batch gives its own: figures must not depend on the batches that a process saw before.
    """
    probe = open_probe(settings)
    return probe, probe.has_baseline
