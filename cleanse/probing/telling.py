"""What the probe found, for people: probe.parquet, and findings in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.probing.half import Half
from cleanse.probing.judge import Judgement, in_words
from cleanse.probing.measure import HALF_FIGURES
from cleanse.probing.settings import ProbeSettings
from cleanse.records import Finding
from cleanse.rulepacks import RuleSet
from cleanse.safe_text import escape

BATCH_FACTOR = 6.0
"""A batch spikes when its loss lies this many robust deviations above the median batch: what trainers' own spike
detectors use (OLMo-core's SkipStep: 6 sigma)."""


def probe_table(
    measured: pa.Table,
    judgement: Judgement,
    names: Mapping[int, str],
    rows: NDArray[np.int64],
    settings: ProbeSettings,
) -> pa.Table:
    """OUT/probe.parquet: one row per measured record, in reading order."""
    shards = measured.column("shard").to_pylist()
    suspect = measured.column("suspect").to_numpy()
    batch = rows // settings.batch_records
    sources = [names[shard] for shard in shards]
    return pa.table(
        {
            "source": sources,
            "row": rows,
            "batch": [
                f"{source}:{b * settings.batch_records}-{(b + 1) * settings.batch_records - 1}"
                for source, b in zip(sources, batch.tolist(), strict=True)
            ],
            "role": np.where(suspect, "suspect", "control").tolist(),
            "script": measured.column("script"),
            "n_tokens": measured.column("n_tokens"),
            "loss": measured.column("loss"),
            "easiest_loss": measured.column("easiest_loss"),
            "max_token_loss": measured.column("max_token_loss"),
            "context_gain": measured.column("context_gain"),
            "min_window_gain": measured.column("min_window_gain"),
            "nats_per_byte": measured.column("nats_per_byte"),
            "order_gain": measured.column("order_gain"),
            "grad_norm": measured.column("grad_norm"),
            **{name: measured.column(name) for name in HALF_FIGURES},
            "p_value": judgement.p_values,
            "loss_finite": measured.column("loss_finite"),
            "grad_finite": measured.column("grad_finite"),
            "worst": measured.column("worst"),
            "problem": measured.column("problem"),
            "dtype": measured.column("dtype"),
            "token_losses": measured.column("token_losses"),
        }
    )


def told(  # noqa: PLR0917 - what was measured, concluded and called
    rules: RuleSet,
    measured: pa.Table,
    judgement: Judgement,
    names: Mapping[int, str],
    table: pa.Table,
    half: Sequence[Half] = (),
) -> list[tuple[int, Finding]]:
    """(shard, finding) for every convicted record, every suspect that was not, and every batch that spikes.

    Also for every record that half precision does not bear, where this was asked.
    """
    found: list[tuple[int, Finding]] = []
    suspect = measured.column("suspect").to_numpy()
    shards, rows = measured.column("shard").to_numpy(), measured.column("row").to_numpy()
    worst = measured.column("worst").to_pylist()
    finite = np.asarray(measured.column("loss_finite")) & np.asarray(measured.column("grad_finite"))
    for i in np.flatnonzero(judgement.convicted | suspect).tolist():
        words, value, expected = in_words(judgement, i)
        if not finite[i]:
            conclusion, message = "probe.not-finite", "the loss or the gradient is not a finite number"
        elif judgement.convicted[i]:
            conclusion = "probe.spike"
            message = f"{words} (p = {judgement.p_values[i]:.2g})"
        else:
            conclusion = "probe.ordinary"
            message = _why_not(judgement, i, words, measured)
        rule = rules.evidence_rule(conclusion)
        finding = Finding(
            names[int(shards[i])],
            int(rows[i]),
            rule.id,
            rule.action.value,
            "",
            None,
            None,
            value if np.isfinite(value) else None,
            expected if np.isfinite(expected) else None,
            message,
            escape(worst[i])[:160],
        )
        found.append((int(shards[i]), finding))
    for one in half:
        rule = rules.evidence_rule(one.conclusion)
        source, row = names[int(shards[one.row])], int(rows[one.row])
        nowhere = (rule.action.value, "", None, None)
        finding = Finding(
            source, row, rule.id, *nowhere, one.value, one.limit, one.message, escape(worst[one.row])[:160]
        )
        found.append((int(shards[one.row]), finding))
    return found + _batches(rules, measured, names, table)


def _why_not(judgement: Judgement, i: int, words: str, measured: pa.Table) -> str:
    if measured.column("n_tokens")[i].as_py() == 0:
        problem = measured.column("problem")[i].as_py()
        return f"not measured: {problem or 'it has no token to compute a loss on'}"
    if np.isnan(judgement.p_values[i]):
        return "measured, but there is nothing to compare it with"
    return f"{words} (p = {judgement.p_values[i]:.2g}, above {judgement.level_suspects:.2g})"


def _batches(
    rules: RuleSet, measured: pa.Table, names: Mapping[int, str], table: pa.Table
) -> list[tuple[int, Finding]]:
    """Batches whose mean token loss spikes: judged where all records of enough batches were measured."""
    rule = rules.evidence_rule("probe.batch")
    tokens = table.column("n_tokens").to_numpy().astype(np.float64)
    loss = np.nan_to_num(table.column("loss").to_numpy())
    labels, first, code = np.unique(
        np.asarray(table.column("batch").to_pylist(), object), return_index=True, return_inverse=True
    )
    weight = np.bincount(code, tokens)
    mean = np.bincount(code, tokens * loss) / np.maximum(weight, 1)
    full = np.bincount(code) == np.bincount(code).max() if len(code) else np.zeros(0, np.bool_)
    if np.count_nonzero(full) < 30 or np.bincount(code).max() < 2:  # noqa: PLR2004 - too few batches have no usual
        return []
    middle = float(np.median(mean[full]))
    spread = max(1.4826 * float(np.median(np.abs(mean[full] - middle))), 1e-6)
    limit = middle + BATCH_FACTOR * spread
    found = []
    shards, rows = measured.column("shard").to_numpy(), measured.column("row").to_numpy()
    for b in np.flatnonzero(mean > limit).tolist():
        i = int(first[b])
        message = (
            f"batch {labels[b]}: loss {mean[b]:.2f} nats per token over its records, {middle:.2f} is usual "
            f"({(mean[b] - middle) / spread:.0f} robust deviations)"
        )
        shard = int(shards[i])
        found.append(
            (
                shard,
                Finding(
                    names[shard],
                    int(rows[i]),
                    rule.id,
                    rule.action.value,
                    "",
                    None,
                    None,
                    float(mean[b]),
                    limit,
                    message,
                    "",
                ),
            )
        )
    return found
