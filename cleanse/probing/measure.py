"""Runs drawn records through the model and commits their figures, a chunk at a time.

Chunks are the same whatever the number of workers, so every record is measured in the same company and gets the
same figures to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cleanse.atomic import committed
from cleanse.engines.job import Job, Report
from cleanse.errors import CleanseError
from cleanse.probing import sample, token_losses
from cleanse.probing.backends import Probe, backend
from cleanse.probing.settings import ProbeSettings
from cleanse.state import unit_path
from cleanse.units import Unit

STAGE = "probe-measure"
CHUNK = 512  # records
BASELINE_RECORDS = 2_000  # controls that a unigram baseline is estimated from, where the model has none of its own

FIGURES = (
    "loss",
    "easiest_loss",
    "max_token_loss",
    "context_gain",
    "min_window_gain",
    "nats_per_byte",
    "order_gain",
    "grad_norm",
)
LEAST_TOKENS = 32  # of a window that can be the easiest or the one where context saves least, if another has as many
HALF_FIGURES = ("activation_amax", "grad_amax", "safe_loss_scale")  # NaN unless the run to come is in half precision
SCHEMA = pa.schema(
    [
        *(sample.SCHEMA.field(name) for name in ("shard", "row", "suspect", "hash", "script")),
        pa.field("n_tokens", pa.int64()),
        *(pa.field(name, pa.float64()) for name in FIGURES),
        *(pa.field(name, pa.float64()) for name in HALF_FIGURES),
        pa.field("loss_finite", pa.bool_()),
        pa.field("grad_finite", pa.bool_()),
        pa.field("worst", pa.string()),
        pa.field("problem", pa.string()),
        pa.field("dtype", pa.string()),  # that the model ran in
        token_losses.FIELD,
    ]
)


class Measured(NamedTuple):
    """One window of a record with what the model says about it."""

    window: Any
    evidence: Any
    order_gain: float  # nats per token, NaN where it has no order to change


@dataclass(frozen=True)
class MeasureTask:
    """All that a worker needs to measure one chunk of what was drawn from a unit."""

    chunk: int
    unit: Unit
    start: int
    stop: int
    settings: ProbeSettings
    n_units: int  # the first ones of the scan: a unigram baseline is taken from what was drawn of them
    folder: Path
    shaded: float = 0.0  # share of the suspects for which the loss of every token is kept


def measuring(task: MeasureTask) -> Job:
    """The job of measuring one chunk."""
    drawn = (unit_path(task.folder, sample.STAGE, unit, ".parquet") for unit in (task.unit.index, *range(task.n_units)))
    path = unit_path(task.folder, STAGE, task.chunk, ".parquet")
    return Job(
        measure_chunk,
        task,
        f"probe of {task.unit}",
        reads=tuple(dict.fromkeys(drawn)),
        writes=(path,),
        measures=True,
    )


def measure_chunk(task: MeasureTask, report: Report) -> None:
    """Measures one chunk. Raises CleanseError when the model or the device is not to be had."""
    probe = _opened(task.settings, task.n_units, task.folder)
    drawn = pq.read_table(unit_path(task.folder, sample.STAGE, task.unit.index, ".parquet"))
    drawn = drawn.slice(task.start, task.stop - task.start)
    measured = figures_of(probe, drawn, task.settings, task.shaded)
    with committed(unit_path(task.folder, STAGE, task.chunk, ".parquet")) as temporary:
        pq.write_table(measured, temporary, compression="zstd")
    report(0, drawn.num_rows, 0)


def figures_of(probe: Probe, drawn: pa.Table, settings: ProbeSettings, shaded: float = 0.0) -> pa.Table:
    """Runs drawn records (``sample.SCHEMA``) through the model: their figures, as a table of ``SCHEMA``.

    For a share ``shaded`` of the suspects, by their content hash, the loss of every token is kept too.
    """
    windows: list[Any] = []
    owner: list[int] = []
    for place, segments in enumerate(_segments(drawn)):
        parts = probe.encode(segments, max_tokens=settings.max_tokens, windows=settings.windows)
        windows += parts
        owner += [place] * len(parts)
    suspect, hashes = drawn.column("suspect").to_numpy(), drawn.column("hash").to_numpy()
    shade = suspect & sample.below(hashes, shaded)
    options = backend(settings.backend).ProbeOptions(token_losses=bool(shade.any()), amax=settings.fp16)
    evidence_of = probe.gradients(windows, options)
    per_record: list[list[Measured]] = [[] for _ in range(drawn.num_rows)]
    for place, *measured in zip(owner, windows, evidence_of, _order_gains(probe, windows, evidence_of), strict=True):
        per_record[place].append(Measured(*measured))
    rows = [_joined(probe, parts, shade=bool(wanted)) for parts, wanted in zip(per_record, shade, strict=True)]
    for row in rows:
        row["dtype"] = probe.info.dtype
    kept = drawn.select(["shard", "row", "suspect", "hash", "script"])
    measures = pa.Table.from_pylist(rows, schema=pa.schema([f for f in SCHEMA if f.name not in kept.column_names]))
    for name in measures.column_names:
        kept = kept.append_column(SCHEMA.field(name), measures.column(name))
    return kept.select(SCHEMA.names)


def _order_gains(probe: Probe, windows: list[Any], evidence_of: list[Any]) -> list[float]:
    """What the order of its words saves per token in each window, in nats; NaN where there is no order to change."""
    others = [probe.reordered(window) for window in windows]
    places = [i for i, other in enumerate(others) if other is not None]
    gains = [math.nan] * len(windows)
    for i, shuffled in zip(places, probe.losses([others[i] for i in places]), strict=True):
        gains[i] = shuffled.loss - evidence_of[i].loss
    return gains


def _segments(drawn: pa.Table) -> list[list[tuple[str, bool]]]:
    texts, supervised = drawn.column("texts").to_pylist(), drawn.column("supervised").to_pylist()
    return [list(zip(t, s, strict=True)) for t, s in zip(texts, supervised, strict=True)]


@lru_cache(maxsize=1)
def _opened(settings: ProbeSettings, n_units: int, folder: Path) -> Probe:
    """The scan's model with a unigram baseline of its tokenizer."""
    probe = loaded(settings, folder)
    if not probe.has_baseline:
        controls: list[Any] = []
        for table in sample.read_samples(folder, n_units, CHUNK):
            controls += baseline_windows(probe, table, settings, BASELINE_RECORDS - len(controls))
            if len(controls) >= BASELINE_RECORDS:
                break
        probe.set_baseline(controls)
    return probe


@lru_cache(maxsize=1)
def loaded(settings: ProbeSettings, folder: Path) -> Probe:  # noqa: ARG001 - a baseline belongs to one scan
    """The model, loaded once per process and scan: all that ask it share it."""
    return open_probe(settings)


def open_probe(settings: ProbeSettings) -> Probe:
    """The model on its device. Raises CleanseError when one of them is not to be had."""
    module = backend(settings.backend)
    try:
        probe: Probe = module.open_probe(
            settings.model,
            adapter=settings.adapter,
            device=settings.device,
            dtype=settings.dtype,
            threads=1,  # several workers share the processors, and figures must not depend on their number
            trust_remote_code=settings.trust_remote_code,
        )
    except (ValueError, OSError, RuntimeError) as error:
        raise CleanseError(f"the probe's model {settings.model!r} cannot be used: {error}") from error
    return probe


def baseline_windows(probe: Probe, drawn: pa.Table, settings: ProbeSettings, n: int) -> list[Any]:
    """Windows of the first ``n`` unsuspected records, to estimate a unigram baseline from."""
    plain = drawn.filter(pc.invert(drawn.column("suspect")))
    windows: list[Any] = []
    for segments in _segments(plain.slice(0, n)):
        windows += probe.encode(segments, max_tokens=settings.max_tokens, windows=1)
    return windows


def _joined(probe: Probe, parts: list[Measured], *, shade: bool) -> dict[str, Any]:
    """One record's figures from those of its windows: means over tokens, extremes over windows.

    Context and order gain are those of the window where context saves least.
    """
    seen = [part for part in parts if part.evidence.n_tokens and not part.evidence.problem]
    problem = next((part.evidence.problem for part in parts if part.evidence.problem), "")
    if not seen:
        nothing = dict.fromkeys((*FIGURES, *HALF_FIGURES), math.nan)
        return {"n_tokens": 0, **nothing, "loss_finite": True, "grad_finite": True, "worst": "", "problem": problem}
    found = [part.evidence for part in seen]
    tokens = np.array([e.n_tokens for e in found], np.float64)

    def mean(name: str, weight: np.ndarray[Any, Any] = tokens) -> float:
        return float(np.average([getattr(e, name) for e in found], weights=weight))

    n_bytes = np.array([part.window.n_bytes for part in seen], np.float64)
    # Damage may fill one window of several: a mean over them would hide it.
    long = [part for part in seen if part.evidence.n_tokens >= min(LEAST_TOKENS, tokens.max())]
    least = min(long, key=lambda part: part.evidence.context_gain)
    window, worst, _ = max(seen, key=lambda part: _nan_last(part.evidence.max_token_loss))
    return {
        "n_tokens": int(tokens.sum()),
        "loss": mean("loss"),
        "easiest_loss": min(part.evidence.loss for part in long),
        "max_token_loss": worst.max_token_loss,
        "context_gain": least.evidence.context_gain,
        "min_window_gain": min(e.min_window_gain for e in found),
        "nats_per_byte": mean("nats_per_byte", n_bytes) if n_bytes.all() else math.nan,
        "order_gain": least.order_gain,
        "grad_norm": max((e.grad_norm for e in found), key=_nan_last),
        "activation_amax": max((e.activation_amax for e in found), key=_nan_last),
        "grad_amax": max((e.grad_amax for e in found), key=_nan_last),
        "safe_loss_scale": min(e.safe_loss_scale for e in found),
        "loss_finite": all(e.loss_finite for e in found),
        "grad_finite": all(e.grad_finite for e in found),
        "worst": _excerpt(probe, window.ids, worst.max_token_index),
        "problem": problem,
        token_losses.FIELD.name: token_losses.pieces(probe, window, worst.token_losses) if shade else None,
    }


def _excerpt(probe: Probe, ids: np.ndarray[Any, Any], index: int) -> str:
    """The text around one token, that token in guillemets."""
    cuts = (ids[max(0, index - 12) : index], ids[index : index + 1], ids[index + 1 : index + 7])
    before, token, after = (str(probe.tokenizer.decode(cut.tolist())) for cut in cuts)
    return f"{before}\u00ab{token}\u00bb{after}"


def _nan_last(value: float) -> float:
    """For maxima: not a number is worse than any number."""
    return math.inf if math.isnan(value) else value
