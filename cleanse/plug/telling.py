"""Verdicts, reasons, findings and figures as columns beside the records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cleanse.plug.judging import Judged
from cleanse.records import FINDINGS_SCHEMA

FINDING = pa.struct([pa.field(f.name, f.type) for f in FINDINGS_SCHEMA if f.name not in {"source", "row"}])
FIGURES = {"cleanse_loss": "loss", "cleanse_grad_norm": "grad_norm", "cleanse_p_value": "p_value"}


def columns_of(judged: Judged, n_records: int, *, probed: bool) -> pa.Table:
    """The columns that ``Filter.annotate`` adds: always of these types, however empty a batch is."""
    verdict = np.full(n_records, "keep", object)
    verdict[judged.verdicts.mended] = "repair"
    verdict[judged.verdicts.suspected] = "suspect"
    verdict[judged.released] = "release"
    verdict[judged.verdicts.held] = "quarantine"
    reasons: list[list[str]] = [[] for _ in range(n_records)]
    for row, why in zip(judged.doubted.held.tolist(), judged.doubted.reasons, strict=True):
        reasons[row] = why
    columns = {
        "cleanse_verdict": pa.array(verdict, pa.string()),
        "cleanse_reasons": pa.array(reasons, pa.list_(pa.string())),
        "cleanse_findings": _findings(judged.findings, n_records),
    }
    if probed:
        columns |= _figures(judged.probe, n_records)
    return pa.table(columns)


def _findings(found: pa.Table, n_records: int) -> pa.ListArray:
    counts = np.bincount(found.column("row").to_numpy(), minlength=n_records)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    parts = [found.column(field.name).combine_chunks() for field in FINDING]
    whole = [part.chunk(0) if isinstance(part, pa.ChunkedArray) else part for part in parts]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(whole, fields=list(FINDING)))


def _figures(probe: pa.Table | None, n_records: int) -> dict[str, pa.Array]:
    columns = {}
    for name, figure in FIGURES.items():
        values = np.full(n_records, np.nan)
        if probe is not None:
            values[probe.column("row").to_numpy()] = probe.column(figure).to_numpy()
        columns[name] = pa.array(values, pa.float64(), from_pandas=True)  # not measured is null
    return columns
