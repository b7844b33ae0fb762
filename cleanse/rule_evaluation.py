"""Which rules a batch of texts crosses: vectorised over the segments, one measure computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cleanse import measures
from cleanse.measures import TextBatch, Values
from cleanse.rulepack_schema import Bounds, Limit, Pattern, Rule

SCRIPT_MEASURE = "script"
"""The measure whose value is the segment's dominant script, packed by ``pack_script``; NaN: no letters."""


def pack_script(code: str) -> float:
    """An ISO 15924 code as a number, so that scripts can travel as a measure's value."""
    return float(int.from_bytes(code.encode("ascii"), "big"))


def unpack_script(value: float) -> str:
    """The ISO 15924 code of a value of the script measure; "Zyyy" (common) for NaN."""
    return "Zyyy" if np.isnan(value) else int(value).to_bytes(4, "big").decode("ascii")


@dataclass(frozen=True)
class Hits:
    """Crossings of limits, ordered by (record, segment, rule). Parallel arrays of shape (hits,)."""

    rule: NDArray[np.int32]  # index into RuleSet.rules
    segment: NDArray[np.int64]
    record: NDArray[np.int64]
    value: NDArray[np.float64]
    limit: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rule)


def measured(name: str, texts: TextBatch) -> Values:
    """A measure's values for a batch, computed at most once per batch."""
    measure = measures.get(name)
    return texts.once(f"measure:{name}", measure.compute)


def evaluate(rules: Sequence[Rule], texts: TextBatch) -> Hits:
    """Every crossing of every measure and pattern rule. Rules that claim events or evidence never match a text."""
    found: list[tuple[NDArray[np.int64], int, Values, Values]] = []
    with np.errstate(invalid="ignore"):
        for index, rule in enumerate(rules):
            if (rule.measure is None and rule.pattern is None) or len(texts) == 0:
                continue
            crossed, values, limits = _crossings(rule, texts)
            if len(crossed):
                found.append((crossed, index, values, limits))
    if not found:
        none = np.zeros(0, np.int64)
        return Hits(none.astype(np.int32), none, none, none.astype(np.float64), none.astype(np.float64))
    segment = np.concatenate([f[0] for f in found])
    rule_index = np.concatenate([np.full(len(f[0]), f[1], np.int32) for f in found])
    order = np.lexsort((rule_index, segment))
    segment = segment[order]
    return Hits(
        rule=rule_index[order],
        segment=segment,
        record=texts.record[segment],
        value=np.concatenate([f[2] for f in found])[order],
        limit=np.concatenate([f[3] for f in found])[order],
    )


def _crossings(rule: Rule, texts: TextBatch) -> tuple[NDArray[np.int64], Values, Values]:
    """Segments beyond the rule's limit, with value and limit.

    A measure is compared first and its guards then tell on the few that crossed; a pattern is only counted
    where the guards let it.
    """
    assert rule.limit is not None
    low, high = _bounds_of(rule.limit, texts)
    if rule.pattern is not None:
        where = _guarded(rule, texts, np.arange(len(texts)))
        values = np.full(len(texts), np.nan)
        if len(where):
            values[where] = count_pattern(rule.pattern, texts, where)
    else:
        assert rule.measure is not None
        values = measured(rule.measure, texts)
    beyond = values > high
    if low.ndim or np.isfinite(low):
        beyond |= values < low
    crossed = np.flatnonzero(beyond)
    if rule.pattern is None and len(crossed):
        crossed = _guarded(rule, texts, crossed)
    high_at = high if high.ndim == 0 else high[crossed]
    low_at = low if low.ndim == 0 else low[crossed]
    return crossed, values[crossed], np.where(values[crossed] > high_at, high_at, low_at)


def _guarded(rule: Rule, texts: TextBatch, segments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of the segments that the rule looks at: role, supervision, and its ``where`` measures."""
    if rule.roles:
        segments = segments[np.isin(texts.role[segments], np.array(rule.roles, np.uint8))]
    if rule.supervised is not None:
        segments = segments[texts.supervised[segments] == rule.supervised]
    for name, limit in rule.where:
        if len(segments) == 0:
            break
        values = measured(name, texts)[segments]
        low, high = (bound if bound.ndim == 0 else bound[segments] for bound in _bounds_of(limit, texts))
        segments = segments[(values >= low) & (values <= high)]
    return segments


def _bounds_of(limit: Limit, texts: TextBatch) -> tuple[Values, Values]:
    """Lowest and highest allowed value: scalars, or one per segment where scripts differ."""
    default = limit.default or Bounds()
    low = np.array(-np.inf if default.min is None else default.min)
    high = np.array(np.inf if default.max is None else default.max)
    if not limit.per_script:
        return low, high
    scripts = measured(SCRIPT_MEASURE, texts)
    low, high = np.full(len(texts), low), np.full(len(texts), high)
    for code, bounds in limit.per_script:
        here = scripts == pack_script(code)
        low[here] = -np.inf if bounds.min is None else bounds.min
        high[here] = np.inf if bounds.max is None else bounds.max
    return low, high


def count_pattern(pattern: Pattern, texts: TextBatch, where: NDArray[np.int64]) -> Values:
    """Matches per segment of ``where``. A text that runs into the timeout of ``regex`` counts as NaN."""
    if pattern.engine == "re2":
        column = texts.arrow()
        if len(where) < len(texts):
            column = column.take(pa.array(where))
        counts = pc.count_substring_regex(column, pattern.text)
        return np.asarray(counts.to_numpy(zero_copy_only=False), np.float64)
    compiled = texts.once(f"regex:{pattern.text}", lambda _: compile_regex(pattern.text))
    return np.array([_count_timed(compiled, texts.text(int(s)), pattern.timeout_s) for s in where], np.float64)


def compile_regex(text: str) -> Any:
    """A compiled pattern of the ``regex`` package (imported here: only packs that ask for it pay for it)."""
    import regex  # noqa: PLC0415

    return regex.compile(text)


def _count_timed(compiled: Any, text: str, timeout_s: float) -> float:
    try:
        return float(sum(1 for _ in compiled.finditer(text, timeout=timeout_s)))
    except TimeoutError:
        return float("nan")
