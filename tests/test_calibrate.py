"""Calibration: the promise about false alarms holds, and damage stands out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanse.calibrate import Calibration, FigureTable, Pattern, Scoring, controls_needed

SCRIPTS = ("Latn", "Hani", "Thai")


def records(n: int, seed: int, *, heavy: bool = True) -> FigureTable:
    """Invented figures with what real ones have: noise that shrinks with length, scripts apart, heavy tails."""
    rng = np.random.default_rng(seed)
    tokens = np.round(np.exp(rng.uniform(1, 6.5, n)))
    script = rng.choice(3, n, p=[0.7, 0.25, 0.05])
    noise = rng.standard_t(3, (n, 2)) if heavy else rng.standard_normal((n, 2))
    spread = 0.2 + 2 / np.sqrt(tokens)
    loss = 4 - 0.2 * np.log(tokens) + 0.8 * script + spread * noise[:, 0]
    norm = 2 - 0.4 * np.log(tokens) + spread * (0.7 * noise[:, 0] + 0.7 * noise[:, 1])
    return FigureTable(("loss", "log_grad_norm"), np.stack([loss, norm], 1), tokens, tuple(SCRIPTS[s] for s in script))


def fitted(table: FigureTable) -> Calibration:
    """A calibration on one table: every third record fits, the others rank."""
    place = np.arange(len(table))
    return Calibration.fit(table.take(place[place % 3 == 0]), table.take(place[place % 3 != 0]))


@pytest.mark.parametrize("budget", [0.1, 0.01])
def test_false_alarms_stay_within_the_budget(budget: float) -> None:
    flagged = total = 0
    for seed in range(20):
        calibration = fitted(records(900, seed))
        fresh = records(2_000, 1_000 + seed)
        flagged += int((calibration.p_values(fresh) <= budget).sum())
        total += len(fresh)
    # Marginally exact up to 1/(n+1); the spread between calibration draws is a beta's.
    assert 0.6 * budget <= flagged / total <= 1.3 * budget


def test_no_p_value_reaches_a_budget_that_needs_more_controls() -> None:
    few = fitted(records(120, 3))
    assert few.smallest_p > 0.001
    assert few.p_values(records(500, 4)).min() >= few.smallest_p
    enough = fitted(records(controls_needed(0.01), 5))
    assert enough.smallest_p <= 0.01


def test_records_that_are_ranked_themselves_count_once() -> None:
    table = records(900, 4)
    place = np.arange(900)
    rank = table.take(place[place % 3 != 0])
    own = fitted(table).p_values(rank, among_ranked=True)
    # Each rank 1/n, 2/n, ... is taken by exactly one record: the budget is met exactly.
    assert sorted(own) == pytest.approx([(i + 1) / 600 for i in range(600)])


def test_both_tails_and_joint_damage_are_flagged() -> None:
    calibration = fitted(records(3_000, 1, heavy=False))
    typical = records(1, 2, heavy=False)
    centre = np.array([[b.expected(typical.n_tokens, typical.script)[0][0] for b in calibration.baselines]])

    def score(shift: tuple[float, float]) -> float:
        odd = FigureTable(typical.names, centre + np.array([shift]), typical.n_tokens, typical.script)
        return float(calibration.scores(odd)[0])

    spread = 0.2 + 2 / np.sqrt(typical.n_tokens[0])
    assert score((0, 0)) < 0.3
    assert score((4 * spread, 2.8 * spread)) > 0.95
    assert score((-4 * spread, -2.8 * spread)) > 0.95
    # Each figure alone is ordinary here, but they never go apart like this in clean records.
    assert score((2 * spread, -1.5 * spread)) > 1.5 * max(score((2 * spread, 1.5 * spread)), score((0, -1.5 * spread)))


def test_a_pattern_finds_a_little_of_several_figures() -> None:
    place = np.arange(3_000)
    table = records(3_000, 1, heavy=False)
    fit, rank = table.take(place[place % 3 == 0]), table.take(place[place % 3 != 0])
    pattern = Scoring(patterns=(Pattern((("loss", -1), ("log_grad_norm", -1)), 0.5),))
    alone, together = Calibration.fit(fit, rank), Calibration.fit(fit, rank, pattern)
    odd = records(400, 2, heavy=False)
    spread = (0.2 + 2 / np.sqrt(odd.n_tokens))[:, None]
    odd = FigureTable(odd.names, odd.figures - spread * np.array([1.6, 1.6]), odd.n_tokens, odd.script)
    assert (together.p_values(odd) <= 0.02).mean() > 1.2 * (alone.p_values(odd) <= 0.02).mean()
    # A pattern of a figure that nobody measured is left out.
    Calibration.fit(fit, rank, Scoring(patterns=(Pattern((("loss", -1), ("unknown", 1)), 0.5),)))


def test_short_and_long_records_have_tails_of_their_own() -> None:
    rng = np.random.default_rng(7)
    tokens = np.repeat([3.0, 200.0], 1_500)
    figure = np.where(tokens < 16, rng.standard_t(2, 3_000), rng.standard_normal(3_000))
    table = FigureTable(("loss",), figure[:, None], tokens, ("Latn",) * 3_000)
    place = np.arange(3_000)
    calibration = Calibration.fit(table.take(place[place % 2 == 0]), table.take(place[place % 2 == 1]))
    odd = FigureTable(("loss",), np.array([[5.0], [5.0]]), np.array([3.0, 200.0]), ("Latn",) * 2)
    short, long = calibration.p_values(odd)
    assert long < 0.005 < short


def test_infinite_figures_come_first_and_missing_ones_say_nothing() -> None:
    calibration = fitted(records(600, 1))
    table = records(3, 2)
    figures = table.figures.copy()
    figures[0, 1] = np.inf
    figures[1, 1] = np.nan
    odd = FigureTable(table.names, figures, table.n_tokens, table.script)
    assert np.isinf(calibration.scores(odd)[0])
    assert calibration.p_values(odd)[0] == calibration.smallest_p
    assert np.isfinite(calibration.scores(odd)[1])
    assert [d.name for d in calibration.explain(odd, 1)] == ["loss"]


def test_explanation_names_value_and_expectation() -> None:
    calibration = fitted(records(900, 1))
    table = records(50, 9)
    figures = table.figures.copy()
    figures[7, 0] += 9
    found = calibration.explain(FigureTable(table.names, figures, table.n_tokens, table.script), 7)
    assert found[0].name == "loss"
    assert found[0].value == pytest.approx(figures[7, 0])
    assert 1 < found[0].expected < 8
    assert found[0].deviate > 1


@settings(max_examples=25, deadline=None)
@given(st.integers(60, 400), st.integers(0, 10_000))
def test_p_values_do_not_depend_on_company_or_order(n: int, seed: int) -> None:
    calibration = fitted(records(300, seed % 7))
    table = records(n, seed)
    whole = calibration.p_values(table)
    order = np.random.default_rng(seed).permutation(n)
    assert np.array_equal(calibration.p_values(table.take(order)), whole[order])
    assert calibration.p_values(table.take(order[:1]))[0] == whole[order[0]]
    assert ((whole > 0) & (whole <= 1)).all()


@pytest.mark.parametrize("n", [0, 10, 24])
def test_too_few_controls_are_refused_in_words(n: int) -> None:
    with pytest.raises(ValueError, match="few|at least"):
        fitted(records(n, 0))


@pytest.mark.parametrize("budget", [0.0, 1.0, -0.1])
def test_a_budget_is_a_share(budget: float) -> None:
    with pytest.raises(ValueError, match="share"):
        controls_needed(budget)
