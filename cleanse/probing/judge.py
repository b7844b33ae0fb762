"""From measured figures to conclusions: which records spike, and what the budget allows to be said about it.

The budget is a share of the clean records of the whole scan. Where only suspects are judged, all of it is spent on
them: a level of ``budget * records / suspects`` for each keeps the expected number of clean records quarantined below
``budget * records``, as a Bonferroni bound over the suspects does, provided that a clean suspect is no odder than a
control. It is capped, so that a handful of suspects in a large corpus still need evidence. Where everything is judged,
suspects get one half of the budget and all other records the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cleanse.calibrate import MIN_FIT, Calibration, FigureTable, Floats, Pattern, Scoring, controls_needed
from cleanse.probing.measure import FIGURES

MOST_LEVEL = 0.02
"""The largest p-value that convicts a suspect, whatever the budget would allow: two witnesses, each at 2 %, agree."""

NAMES = (*(name for name in FIGURES if name != "grad_norm"), "log_grad_norm")
SCORING = Scoring(
    # Context and order that save more than usual, and a most surprising token that is none, are no damage; what is
    # too easy shows in the loss.
    sides={
        "easiest_loss": (),
        "max_token_loss": (1,),
        "context_gain": (-1,),
        "min_window_gain": (-1,),
        "order_gain": (-1,),
    },
    patterns=(
        # Words in no order, or none at all: neither the context nor the order of what is read saves anything.
        Pattern((("context_gain", -1), ("order_gain", -1)), 0.5),
        # Repetition: nothing costs less, and yet the gradients of all its tokens agree and add up.
        Pattern((("log_grad_norm", 1), ("easiest_loss", -1)), 0.1),
    ),
)
"""Half of the false alarms go to what only a model can see: words in no order. No figure of a text shows it."""

_FIT_EVERY = 2  # one control in two fits (``calibrate.FIT_SHARE``)


@dataclass(frozen=True)
class Judgement:
    """What the probe concludes about every measured record, in the order of the table."""

    p_values: Floats  # NaN: not judged
    convicted: NDArray[np.bool_]
    calibrations: tuple[Calibration, ...]  # by which each record was judged
    judged_by: NDArray[np.int8]  # (records,) index into ``calibrations``; -1: none
    figures: FigureTable  # those that enough controls have
    notes: tuple[str, ...]
    level_suspects: float
    level_others: float  # 0: others are controls only


def figure_table(measured: pa.Table) -> FigureTable:
    """The figures that are scored. The gradient norm enters as its logarithm: it spans orders of magnitude."""
    columns = [_floats(measured, name) for name in NAMES[:-1]]
    with np.errstate(divide="ignore", invalid="ignore"):
        columns.append(np.log(_floats(measured, "grad_norm")))
    # A gradient of exactly zero says "nothing to learn", which its loss says already.
    columns[-1][np.isneginf(columns[-1])] = np.nan
    return FigureTable(
        NAMES,
        np.stack(columns, axis=1),
        _floats(measured, "n_tokens"),
        tuple(measured.column("script").to_pylist()),
    )


def _floats(table: pa.Table, name: str) -> Floats:
    return table.column(name).cast(pa.float64()).to_numpy().copy()


def judge(measured: pa.Table, *, n_read: int, budget: float, everything: bool) -> Judgement:
    """Judges suspects, and with ``everything`` all other records too, against controls.

    Args:
        measured: columns of ``measure.SCHEMA``.
        n_read: records of the whole scan.
        budget: share of clean records that may be convicted.
        everything: whether every record was measured, and may be convicted.
    """
    table = figure_table(measured)
    suspect = measured.column("suspect").to_numpy()
    usable = table.n_tokens > 0
    broken = usable & ~(_flags(measured, "loss_finite") & _flags(measured, "grad_finite"))
    controls = np.flatnonzero(usable & ~suspect & ~broken)
    suspects = np.flatnonzero(usable & suspect)
    notes: list[str] = []
    level_s, level_o = levels(budget, n_read, len(suspects), everything=everything)
    p = np.full(len(table), np.nan)
    judged_by = np.full(len(table), -1, np.int8)
    calibrations: list[Calibration] = []
    if len(controls) < 2 * MIN_FIT:
        notes.append(
            f"{len(controls)} unsuspected records are too few to say what is ordinary here (at least {2 * MIN_FIT}): "
            "the probe measured, but convicts only records whose loss or gradient is not a number"
        )
    else:
        # Which control fits and which ranks follows from its content: the same in every order.
        part = (measured.column("hash").to_numpy()[controls] % np.uint64(_FIT_EVERY)).astype(np.int64)
        folds = [part == 0, part != 0]
        if min(np.count_nonzero(folds[0]), np.count_nonzero(folds[1])) < MIN_FIT:
            half = np.arange(len(controls)) % 2 == 0
            folds = [half, ~half]
        table = table.only(_known(table, [controls[fold] for fold in folds]))
        fit, rank = (table.take(controls[fold]) for fold in folds)
        calibrations.append(Calibration.fit(fit, rank, SCORING))
        p[suspects] = calibrations[0].p_values(table.take(suspects))
        judged_by[suspects] = 0
        if everything:
            calibrations.append(Calibration.fit(rank, fit, SCORING))
            for index, fold in ((0, folds[1]), (1, folds[0])):
                mine = controls[fold]
                p[mine] = calibrations[index].p_values(table.take(mine), among_ranked=True)
                judged_by[mine] = index
        notes += _too_few(calibrations, level_s if len(suspects) else 1.0, level_o if everything else 1.0, budget)
    with np.errstate(invalid="ignore"):
        convicted = np.where(suspect, p <= level_s, p <= level_o) | broken
    return Judgement(p, convicted, tuple(calibrations), judged_by, table, tuple(notes), level_s, level_o)


def _known(table: FigureTable, folds: list[NDArray[np.int64]]) -> list[str]:
    """The figures that enough controls of every fold have: one-word answers, for example, have no order of words."""
    counts = [np.isfinite(table.figures[fold]).sum(axis=0) for fold in folds]
    return [name for name, *n in zip(table.names, *counts, strict=True) if min(n) >= MIN_FIT]


def levels(budget: float, n_read: int, n_suspects: int, *, everything: bool) -> tuple[float, float]:
    """Largest convicting p-value of suspects and of all others, where so many records of ``n_read`` are suspected."""
    if not everything:
        return min(MOST_LEVEL, budget * n_read / max(n_suspects, 1)), 0.0
    if n_suspects == 0:
        return 0.0, budget
    return min(MOST_LEVEL, 0.5 * budget * n_read / n_suspects), 0.5 * budget


def _too_few(calibrations: list[Calibration], level_s: float, level_o: float, budget: float) -> list[str]:
    floor = max(c.smallest_p for c in calibrations)
    wanted = min(level_s, level_o)
    if wanted >= floor:
        return []
    have = sum(len(c.ranked) for c in calibrations[:1])
    return [
        (
            f"{have:,} ranked controls cannot show a p-value below {floor:.2g}, and a budget of {budget:g} asks for "
            f"{wanted:.2g} here ({controls_needed(wanted):,} unsuspected records): give a larger --budget, or more data"
        )
    ]


def _flags(measured: pa.Table, name: str) -> NDArray[np.bool_]:
    return np.asarray(pc.fill_null(measured.column(name), fill_value=True).to_numpy(zero_copy_only=False), np.bool_)


def in_words(judgement: Judgement, row: int) -> tuple[str, float, float]:
    """What was measured about one record: a sentence, and value and expectation of its oddest figure."""
    index = int(judgement.judged_by[row])
    if index < 0:
        return "", float(judgement.figures.figures[row, 0]), float("nan")
    found = {d.name: d for d in judgement.calibrations[index].explain(judgement.figures, row)}
    oddest = next(iter(found.values()))
    tokens, script = int(judgement.figures.n_tokens[row]), judgement.figures.script[row]
    said = []
    if "loss" in found:
        loss = found["loss"]
        off = loss.value - loss.expected
        side = "above" if off >= 0 else "below"
        said.append(
            f"loss {loss.value:.2f} nats per token, {abs(off):.2f} {side} what {tokens:,} tokens of {script} have here"
        )
    if "log_grad_norm" in found:
        norm = found["log_grad_norm"]
        said.append(f"gradient norm {np.exp(norm.value):.3g}, {np.exp(norm.value - norm.expected):.2g} times the usual")
    if oddest.name in _PHRASES:
        said.append(_PHRASES[oddest.name].format(value=oddest.value, expected=oddest.expected))
    return "; ".join(said), oddest.value, oddest.expected


_PHRASES: dict[str, Any] = {
    "order_gain": "the order of its words saves {value:.2f} nats per token where {expected:.2f} is usual",
    "context_gain": "reading the context saves {value:.2f} nats per token where {expected:.2f} is usual",
    "min_window_gain": "in its worst 32 tokens the context saves {value:.2f} nats per token, {expected:.2f} is usual",
    "nats_per_byte": "{value:.2f} nats per byte where {expected:.2f} is usual",
    "max_token_loss": "its most surprising token costs {value:.1f} nats, {expected:.1f} is usual",
}
