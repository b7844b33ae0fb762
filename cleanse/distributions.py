"""How long records are, in which script, how much text a token covers: counts small enough for summary.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from cleanse import measures
from cleanse.measures import TextBatch
from cleanse.rule_evaluation import SCRIPT_MEASURE, measured, unpack_script

Counts = dict[str, dict[str, int]]
"""Name of the distribution -> lower edge of the bin, or code of the script -> records in it. What has no record is
left out. Keys are text, as JSON has them."""

LENGTHS = np.unique(np.ceil(2.0 ** (np.arange(0, 4 * 36 + 1) / 4)).astype(np.int64))
"""Lower edges of the bins of lengths: four to an octave, up to 2^36. A length of 0 has a bin of its own."""

DENSITIES = np.arange(0, 401) / 20
"""Lower edges of the bins of characters per token: twentieths, the last one open."""


class Distributions:
    """Adds up what one reader of records sees. The sum does not depend on how the records came in blocks."""

    def __init__(self) -> None:
        self._lengths = np.zeros(len(LENGTHS) + 1, np.int64)
        self._densities = np.zeros(len(DENSITIES) + 1, np.int64)
        self._scripts: dict[str, int] = {}

    def add(self, texts: TextBatch, tokens: NDArray[np.int64] | None = None) -> None:
        """Counts the records of a batch.

        Args:
            texts: their segments; a record's length is the sum over them, in characters.
            tokens: (segments,) how many tokens each segment has, where a tokenizer was given.
        """
        if texts.n_records == 0:
            return
        characters = np.asarray(pc.utf8_length(texts.arrow()), np.float64)
        length = np.bincount(texts.record, characters, minlength=texts.n_records)
        self._lengths += np.bincount(np.searchsorted(LENGTHS, length, side="right"), minlength=len(self._lengths))
        for code, n in scripts(texts).items():
            self._scripts[code] = self._scripts.get(code, 0) + n
        if tokens is None:
            return
        n_tokens = np.bincount(texts.record, tokens, minlength=texts.n_records)
        some = n_tokens > 0
        place = np.searchsorted(DENSITIES, length[some] / n_tokens[some], side="right")
        self._densities += np.bincount(place, minlength=len(self._densities))

    def to_json(self) -> Counts:
        """The counts that are not zero."""
        found = {"characters": _sparse(self._lengths, LENGTHS)}
        if self._densities.any():
            found["characters_per_token"] = _sparse(self._densities, DENSITIES)
        if self._scripts:
            found["scripts"] = dict(self._scripts)
        return found


def scripts(texts: TextBatch) -> dict[str, int]:
    """Records by the script of their longest segment (ISO 15924); those without a letter are "Zyyy".

    Empty where no rule pack brings the measure.
    """
    if SCRIPT_MEASURE not in measures.names() or len(texts) == 0:
        return {}
    order = np.lexsort((-np.diff(texts.offsets), texts.record))
    _, first = np.unique(texts.record[order], return_index=True)
    codes, counts = np.unique(measured(SCRIPT_MEASURE, texts)[order[first]], return_counts=True)
    return {unpack_script(float(code)): int(n) for code, n in zip(codes, counts, strict=True)}


def merge(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> Counts:
    """The sum of several counts, bins ascending."""
    total: dict[str, dict[str, int]] = {}
    for part in parts:
        for name, counts in part.items():
            into = total.setdefault(name, {})
            for edge, n in counts.items():
                into[edge] = into.get(edge, 0) + n
    return {name: dict(sorted(counts.items(), key=_place)) for name, counts in total.items()}


def _place(item: tuple[str, int]) -> tuple[float, str]:
    """Bins by their edge, scripts by how many records they have."""
    key, n = item
    return (-float(n), key) if key.isalpha() else (float(key), "")


def _sparse(counts: NDArray[np.int64], edges: NDArray[np.int64] | NDArray[np.float64]) -> dict[str, int]:
    lower = ["0", *(f"{edge:g}" if edge % 1 else str(int(edge)) for edge in edges.tolist())]
    found: dict[str, int] = {}
    for place in np.flatnonzero(counts).tolist():
        found[lower[place]] = found.get(lower[place], 0) + int(counts[place])
    return found
