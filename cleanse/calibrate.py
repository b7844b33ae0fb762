"""What is a spike: how far a record's figures lie from what its length and script explain, and how rare that is.

The probe measures several figures per record (loss, context gain, gradient norm, ...). Most of their spread has
innocent causes: short answers have noisy losses, Thai has other losses than Latin. So each figure is first
compared with a baseline fitted on **controls**, records of the same corpus that nothing suspects. What is left is
scored alone and jointly, in both tails (poison that a model has already learnt has *low* loss), each by how rare it is
among controls, and the score is turned into a conformal p-value: its rank among control records that the baseline has
not seen.

Split conformal prediction (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005; Papadopoulos
et al., "Inductive Confidence Machines for Regression", 2002) then promises: if a clean record is exchangeable with
the controls, P(p <= budget) <= budget, whatever the model, the figures or the quality of the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FIT_SHARE = 1 / 2  # of the controls fit baselines and tails; the rest rank the scores
HUBER_K = 1.345  # 95 % efficiency at the normal distribution (Huber 1964)
SCRIPT_PRIOR = 8.0  # controls of a script that weigh as much as the common baseline
MIN_FIT = 24  # fewer controls than this cannot carry a baseline at all
TAIL_SHARE = 0.05  # of the fitting controls make a tail
MIN_TAIL = 8  # ... but at least so many
STRATA = (16.0, 64.0)  # tokens: one-word answers have other tails than long texts
MIN_STRATUM = 60  # fitting controls that carry tails of their own
_IRLS_STEPS = 12
_TINY = 1e-9


@dataclass(frozen=True)
class FigureTable:
    """The probe's figures of many records, one row each.

    ``figures`` is (records, names); NaN where a figure was not measured. ``n_tokens`` is (records,) supervised
    tokens; ``script`` holds ISO 15924 codes.
    """

    names: tuple[str, ...]
    figures: Floats
    n_tokens: Floats
    script: tuple[str, ...]

    def __post_init__(self) -> None:
        n = len(self.script)
        if self.figures.shape != (n, len(self.names)) or self.n_tokens.shape != (n,):
            raise ValueError(
                f"{n} scripts, figures {self.figures.shape}, n_tokens {self.n_tokens.shape}: expected "
                f"({n}, {len(self.names)}) and ({n},)"
            )

    def __len__(self) -> int:
        return len(self.script)

    def only(self, names: Sequence[str]) -> FigureTable:
        """These figures alone."""
        places = [self.names.index(name) for name in names]
        return FigureTable(tuple(names), self.figures[:, places], self.n_tokens, self.script)

    def take(self, rows: NDArray[np.int64]) -> FigureTable:
        """The rows named, in that order."""
        return FigureTable(self.names, self.figures[rows], self.n_tokens[rows], tuple(self.script[i] for i in rows))


def controls_needed(budget: float) -> int:
    """How many controls it takes before any record can have a p-value at or below ``budget``."""
    if not 0 < budget < 1:
        raise ValueError(f"the budget is a share of records between 0 and 1, not {budget}")
    ranking = math.ceil(1 / budget) - 1
    return math.ceil(ranking / (1 - FIT_SHARE))


def _basis(n_tokens: Floats) -> Floats:
    """Length as the baseline sees it: a line in log tokens with knees at 16, 64 and 256. (records, 5)."""
    x = np.log(np.maximum(n_tokens, 1.0))
    knees = [np.maximum(x - math.log(k), 0.0) for k in (16.0, 64.0, 256.0)]
    return np.stack([np.ones_like(x), x, *knees], axis=1)


def _ridge(basis: Floats, target: Floats, weight: Floats) -> Floats:
    """Weighted least squares with a whisper of ridge, so that an empty stretch of lengths is no singularity."""
    penalty = np.diag([0.0, *([0.5] * (basis.shape[1] - 1))])
    weighted = basis * weight[:, None]
    return np.linalg.solve(basis.T @ weighted + penalty + _TINY * np.eye(len(penalty)), weighted.T @ target)


@dataclass(frozen=True)
class _Baseline:
    """One figure as a function of length and script: location and spread."""

    location: Floats  # (basis,)
    log_spread: Floats  # (basis,)
    offset: dict[str, float]  # per script, in units of spread
    middle: float
    upper: float  # the 99th percentile of standardised residuals above the middle
    lower: float

    @classmethod
    def fit(cls, figure: Floats, n_tokens: Floats, script: Sequence[str]) -> _Baseline:
        known = np.isfinite(figure)
        y, basis = figure[known], _basis(n_tokens[known])
        labels = np.asarray(script, dtype=object)[known]
        if len(y) < MIN_FIT:
            raise ValueError(f"a baseline needs at least {MIN_FIT} finite control figures, got {len(y)}")
        weight = np.ones_like(y)
        location = _ridge(basis, y, weight)
        log_spread = np.zeros(basis.shape[1])
        for _ in range(_IRLS_STEPS):
            residual = y - basis @ location
            # E log|r| of a normal residual lies 0.635 below log sigma.
            log_spread = _ridge(basis, np.log(np.abs(residual) + 1e-3 * _scale(residual)) + 0.635, weight)
            z = residual / np.exp(basis @ log_spread)
            weight = np.minimum(1.0, HUBER_K / np.maximum(np.abs(z), _TINY))
            location = _ridge(basis, y, weight / np.exp(2 * (basis @ log_spread)))
        z = (y - basis @ location) / np.exp(basis @ log_spread)
        offset: dict[str, float] = {}
        for code in sorted(set(labels)):
            own = z[labels == code]
            offset[code] = float(np.median(own)) * len(own) / (len(own) + SCRIPT_PRIOR)
        z = z - np.fromiter((offset[c] for c in labels), np.float64, len(labels))
        middle = float(np.median(z))
        high, low = np.quantile(z, [0.99, 0.01])
        floor = 0.25 * _scale(z)
        return cls(
            location,
            log_spread,
            offset,
            middle,
            max(float(high) - middle, floor),
            max(middle - float(low), floor),
        )

    def expected(self, n_tokens: Floats, script: Sequence[str]) -> tuple[Floats, Floats]:
        """Location and spread of clean records of these lengths and scripts, in the figure's own unit."""
        basis = _basis(n_tokens)
        spread = np.exp(basis @ self.log_spread)
        shift = np.fromiter((self.offset.get(c, 0.0) for c in script), np.float64, len(script))
        return basis @ self.location + (shift + self.middle) * spread, spread

    def deviate(self, figure: Floats, n_tokens: Floats, script: Sequence[str]) -> Floats:
        """Signed distance from the expectation; 1 (or -1) is the 99th (1st) percentile of clean records."""
        centre, spread = self.expected(n_tokens, script)
        z = (figure - centre) / spread
        return np.where(z >= 0, z / self.upper, z / self.lower).astype(np.float64)


def _scale(values: Floats) -> float:
    """A robust standard deviation: 1.4826 times the median absolute deviation, never 0."""
    return max(1.4826 * float(np.median(np.abs(values - np.median(values)))), _TINY)


@dataclass(frozen=True)
class _Tail:
    """How rare a value is that lies beyond most of what clean records have.

    Beyond a threshold the excess is taken as exponential (the middle case of the generalised Pareto law of excesses,
    Pickands 1975): figures with heavy tails have long scales, so a distance in one means as much as in another.
    """

    threshold: float
    log_share: float  # of values at or below the threshold, -log of the share beyond it
    excess: float  # mean excess beyond it

    @classmethod
    def fit(cls, values: Floats) -> _Tail:
        known = np.sort(values[np.isfinite(values)])
        n_tail = min(max(MIN_TAIL, round(TAIL_SHARE * len(known))), len(known) - 1)
        threshold = max(float(known[-n_tail - 1]), _TINY)
        excess = max(float(np.mean(np.maximum(known[-n_tail:] - threshold, 0.0))), 1e-3 * threshold)
        return cls(threshold, math.log(len(known) / n_tail), excess)

    def rarity(self, values: Floats) -> Floats:
        """-log of the share of clean records beyond each value; 0 for a value that is missing or not above 0."""
        below = self.log_share * np.clip(values / self.threshold, 0.0, 1.0)
        beyond = np.maximum(values - self.threshold, 0.0) / self.excess
        return np.nan_to_num(below + beyond, nan=0.0).astype(np.float64)


@dataclass(frozen=True)
class Deviation:
    """One figure of one record beside what clean records of its length and script have."""

    name: str
    value: float
    expected: float
    deviate: float  # 1 is the 99th percentile of clean records on that side; negative is below


@dataclass(frozen=True)
class Pattern:
    """What a kind of damage does to several figures at once: each goes to its side, 1 up or -1 down."""

    parts: tuple[tuple[str, int], ...]
    share: float  # of the false alarms that may be spent on it


@dataclass(frozen=True)
class Scoring:
    """In which respects a record can be odd.

    ``sides`` of a figure that are scored alone, by its name; both where it is not named. Patterns get their shares of
    the false alarms; single figures and the joint distance get equal parts of what is left.
    """

    sides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    patterns: tuple[Pattern, ...] = ()

    def among(self, names: Sequence[str]) -> Scoring:
        """What of this can be said with these figures alone."""
        return Scoring(self.sides, tuple(p for p in self.patterns if {name for name, _ in p.parts} <= set(names)))

    def oddities(self, names: Sequence[str], deviates: Floats, joint: Floats) -> Floats:
        """All that is scored, (records, oddities), larger being odder; NaN where nothing was measured."""
        columns = [side * deviates[:, j] for j, name in enumerate(names) for side in self.sides.get(name, (1, -1))]
        for pattern in self.patterns:
            sides = [side * deviates[:, names.index(name)] for name, side in pattern.parts]
            columns.append(_mean_of_known(np.column_stack(sides)))
        return np.column_stack([*columns, joint]).astype(np.float64)

    def by_length(self, names: Sequence[str]) -> list[bool]:
        """Of every oddity, in their order: whether short and long records have tails of their own.

        Not for patterns: those are of damage that a few words cannot have, so long records may have all of their share.
        """
        n_single = sum(len(self.sides.get(name, (1, -1))) for name in names)
        return [*[True] * n_single, *[False] * len(self.patterns), True]

    def log_shares(self, names: Sequence[str]) -> Floats:
        """Of every oddity, in their order: the logarithm of its share of the false alarms (Bonferroni's bound)."""
        n_single = sum(len(self.sides.get(name, (1, -1))) for name in names)
        rest = (1.0 - sum(pattern.share for pattern in self.patterns)) / (n_single + 1)
        return np.log([*[rest] * n_single, *(pattern.share for pattern in self.patterns), rest]).astype(np.float64)


@dataclass(frozen=True)
class Calibration:
    """Baselines of every figure and the ranked scores of controls they were not fitted on."""

    names: tuple[str, ...]
    scoring: Scoring
    baselines: tuple[_Baseline, ...]
    mixing: Floats  # (figures, figures) whitening of the deviates, for the joint distance
    tails: tuple[tuple[_Tail, ...], ...]  # by stratum of length, of every oddity
    ranked: Floats  # ascending scores of the ranking controls

    @classmethod
    def fit(cls, fit: FigureTable, rank: FigureTable, scoring: Scoring | None = None) -> Calibration:
        """Fits baselines, mixing and tails on one set of controls and ranks the scores of another.

        The promise holds for records that are exchangeable with ``rank``; all else only decides how sharp it is.
        Raises ValueError when the controls cannot carry a baseline (see ``MIN_FIT``).
        """
        if len(rank) == 0:
            raise ValueError(f"{len(fit)} control records are too few: none is left to rank")
        baselines = tuple(_Baseline.fit(fit.figures[:, j], fit.n_tokens, fit.script) for j in range(len(fit.names)))
        deviates = _deviates(baselines, fit)
        clipped = np.clip(np.nan_to_num(deviates), -1.5, 1.5)
        covariance = np.cov(clipped, rowvar=False).reshape(len(fit.names), len(fit.names))
        shrunk = 0.8 * covariance + 0.2 * np.diag(np.diag(covariance)) + 1e-6 * np.eye(len(covariance))
        mixing = np.linalg.inv(np.linalg.cholesky(shrunk)).T
        made = cls(fit.names, (scoring or Scoring()).among(fit.names), baselines, mixing, (), np.empty(0))
        by_length = made.scoring.by_length(fit.names)
        made = replace(made, tails=_tails(made._oddities(fit), _stratum(fit.n_tokens), by_length))
        return replace(made, ranked=np.sort(made.scores(rank)))

    def _oddities(self, table: FigureTable) -> Floats:
        deviates = _deviates(self.baselines, table)
        joint = np.linalg.norm(np.nan_to_num(deviates, posinf=1e9, neginf=-1e9) @ self.mixing, axis=1)
        return self.scoring.oddities(self.names, deviates, joint)

    def scores(self, table: FigureTable) -> Floats:
        """How odd each record is, (records,): the rarity of the rarest thing about it.

        Near 1 is where the most extreme percent of clean records begins. A figure that is infinite, or a loss that is
        not a number where there were tokens to compute it on, scores infinity.
        """
        if table.names != self.names:
            raise ValueError(f"calibrated on {self.names}, asked about {table.names}")
        oddities, stratum = self._oddities(table), _stratum(table.n_tokens)
        rarest = np.full(len(table), -np.inf)
        for k, log_share in enumerate(self.scoring.log_shares(self.names)):
            for number, tails in enumerate(self.tails):
                mine = stratum == number
                rarest[mine] = np.maximum(rarest[mine], tails[k].rarity(oddities[mine, k]) + log_share)
        broken = np.isinf(table.figures).any(axis=1)
        return np.where(broken, np.inf, rarest / math.log(100)).astype(np.float64)

    def p_values(self, table: FigureTable, *, among_ranked: bool = False) -> Floats:
        """Conformal p-values, (records,): (1 + controls at least as odd) / (1 + controls).

        ``among_ranked`` is for records that are themselves among the ranked controls: each is then counted once.
        """
        scores = self.scores(table)
        extra = 0 if among_ranked else 1
        at_least = (len(self.ranked) - np.searchsorted(self.ranked, scores, side="left")).astype(np.float64)
        return (extra + at_least) / (extra + len(self.ranked))

    def explain(self, table: FigureTable, row: int) -> list[Deviation]:
        """The record's figures, most deviating first; figures that were not measured are left out."""
        one = table.take(np.array([row]))
        found = []
        for j, (name, baseline) in enumerate(zip(self.names, self.baselines, strict=True)):
            value = float(one.figures[0, j])
            if math.isnan(value):
                continue
            centre, _ = baseline.expected(one.n_tokens, one.script)
            deviate = float(baseline.deviate(one.figures[:, j], one.n_tokens, one.script)[0])
            found.append(Deviation(name, value, float(centre[0]), deviate))
        return sorted(found, key=lambda d: -abs(d.deviate))

    @property
    def smallest_p(self) -> float:
        """The smallest p-value these controls can give: with a budget below it nothing is ever flagged."""
        return 1.0 / (1.0 + len(self.ranked))


def _deviates(baselines: Sequence[_Baseline], table: FigureTable) -> Floats:
    """(records, figures) signed deviates; NaN where the figure was not measured."""
    columns = [b.deviate(table.figures[:, j], table.n_tokens, table.script) for j, b in enumerate(baselines)]
    return np.stack(columns, axis=1).astype(np.float64) if columns else np.zeros((len(table), 0))


def _stratum(n_tokens: Floats) -> NDArray[np.int64]:
    """Which stratum of length each record is in, (records,)."""
    return np.digitize(n_tokens, STRATA).astype(np.int64)


def _tails(oddities: Floats, stratum: NDArray[np.int64], by_length: Sequence[bool]) -> tuple[tuple[_Tail, ...], ...]:
    """Tails of every oddity in every stratum; those of all records where a stratum has too few that are known."""
    found = []
    for number in range(len(STRATA) + 1):
        mine = oddities[stratum == number]
        enough = (np.isfinite(mine).sum(axis=0) >= MIN_STRATUM) & np.asarray(by_length)
        columns = range(oddities.shape[1])
        found.append(tuple(_Tail.fit(mine[:, k] if enough[k] else oddities[:, k]) for k in columns))
    return tuple(found)


def _mean_of_known(values: Floats) -> Floats:
    """Mean over the last axis of what is a number, (records,); NaN where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis=1)
    total = np.where(known, values, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float64)
