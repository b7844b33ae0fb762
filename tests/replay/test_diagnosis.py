"""The five answers, on figures whose cause is known."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanse.replaying.diagnosis import Kind, diagnose, suspects
from cleanse.replaying.figures import LeftOut, RowFigures, RunLog, StepFigures
from cleanse.replaying.ranking import rank

HEALTHY = [(0, 2.1, 1.0, 40), (1, 1.8, 0.9, 55), (2, 2.6, 1.3, 25), (3, 2.2, 1.1, 60)]


def step(rows, grad_norm=None, **settings):
    figures = tuple(
        r if isinstance(r, RowFigures) else RowFigures(row=r[0], loss=r[1], grad_norm=r[2], n_supervised=r[3])
        for r in rows
    )
    bare = StepFigures(figures, 0.0, **settings)
    loss = sum(bare.weight(r) * r.best_loss for r in figures)
    if grad_norm is None:  # gradients of different rows are nearly orthogonal
        norms = [bare.weight(r) * r.best_norm for r in figures if r.best_norm is not None]
        grad_norm = math.sqrt(sum(x * x for x in norms))
    return StepFigures(figures, loss, grad_norm, **settings)


def shifted(rows, by, factor=1.0, start=100):
    return [(start + i, loss + by, norm * factor, n) for i, (_, loss, norm, n) in enumerate(rows)]


BEFORE = step(shifted(HEALTHY, 0.1))


def test_one_row_carries_the_gradient():
    bad = step([*HEALTHY[:3], (3, 9.5, 40.0, 60)])
    found = diagnose(bad, BEFORE)
    assert (found.kind, found.culprits) == (Kind.DATA, (3,))
    assert found.ranking[0].row == 3
    assert "Row 3 carries" in found.evidence
    assert "9.50 nats" in found.evidence


def test_a_row_whose_loss_is_high_and_whose_gradient_is_small():
    """A base64 blob: the loss is far off, the gradient norm falls."""
    bad = step([*HEALTHY[:3], (3, 11.0, 0.4, 200)])
    found = diagnose(bad, BEFORE)
    assert (found.kind, found.culprits) == (Kind.DATA, (3,))


def test_leaving_the_row_out_decides():
    bad = step([*HEALTHY[:3], (3, 9.5, 40.0, 60)])
    gone = LeftOut(frozenset({3}), loss=2.1, grad_norm=0.8)
    stays = LeftOut(frozenset({3}), loss=bad.loss, grad_norm=bad.grad_norm)
    assert diagnose(bad, BEFORE, [gone]).kind is Kind.DATA
    assert "without it the step has loss 2.100" in diagnose(bad, BEFORE, [gone]).evidence
    assert diagnose(bad, BEFORE, [stays]).kind is Kind.NOT_REPRODUCED


def test_the_only_row_of_a_step_is_judged_by_the_step_before():
    found = diagnose(step([(3, 9.5, 40.0, 60)]), BEFORE)
    assert (found.kind, found.culprits) == (Kind.DATA, (3,))
    log = RunLog(usual_loss=2.0)
    assert diagnose(step([(3, 9.5, 40.0, 60)]), BEFORE, log=log).kind is Kind.DATA
    risen = step(shifted(HEALTHY, 7.0, 30.0))
    assert diagnose(step([(3, 9.5, 40.0, 60)]), risen, log=log).kind is Kind.OPTIMISATION


def test_trait_36_all_rows_alike_accuses_none(bug_reports):
    trait = next(t for t in map(json.loads, bug_reports.read_text().splitlines()) if t["id"] == 36)
    assert "all rows of the batch spike alike" in trait["expected"]
    spiking = step([(i, loss, norm * 10_000, n) for i, loss, norm, n in HEALTHY])
    for before, log in (
        (BEFORE, RunLog(grad_norm=11_140.0)),
        (None, RunLog(grad_norm=11_140.0, usual_grad_norm=0.8)),
        (step(shifted(HEALTHY, 0.0, 9_000)), RunLog(grad_norm=11_140.0, usual_grad_norm=0.8)),
    ):
        found = diagnose(spiking, before, log=log)
        assert found.kind is Kind.OPTIMISATION
        assert found.culprits == ()
        assert "spike alike" in found.evidence


def test_trait_35_the_row_that_gives_nan_or_the_word_that_none_does(bug_reports):
    trait = next(t for t in map(json.loads, bug_reports.read_text().splitlines()) if t["id"] == 35)
    assert "no row reproduces; suspect hardware/state" in trait["expected"]
    log = RunLog(step=100, loss=0.0, grad_norm=math.nan)
    nan_row = RowFigures(3, 12, loss=2.0, grad_norm=math.nan, first_overflow="model.layers.0.mlp")
    found = diagnose(step([*HEALTHY[:3], nan_row], grad_norm=math.nan), BEFORE, log=log)
    assert (found.kind, found.culprits) == (Kind.DATA, (3,))
    assert "gradient that is not finite" in found.evidence
    healthy = diagnose(step(HEALTHY), BEFORE, log=log)
    assert (healthy.kind, healthy.culprits) == (Kind.NOT_REPRODUCED, ())
    assert "No row reproduces" in healthy.evidence
    assert "hardware" in healthy.remedy
    assert "state" in healthy.remedy


def test_optimisation_names_rate_warm_up_and_clipping():
    log = RunLog(
        step=7,
        learning_rate=0.02,
        warmup_steps=100,
        max_grad_norm=1.0,
        grad_norm=85.0,
        usual_loss=2.1,
        usual_grad_norm=1.0,
        guess_loss=9.0,
    )
    found = diagnose(step(shifted(HEALTHY, 8.0, 30.0)), step(shifted(HEALTHY, 7.5, 30.0)), log=log)
    assert found.kind is Kind.OPTIMISATION
    assert "0.02, 7 of 100 steps into the warm-up" in found.evidence
    assert "clipping at 1 cut the update by 85" in found.evidence


def test_no_supervised_token():
    empty = step([(i, math.nan, math.nan, 0) for i in range(2)], grad_norm=math.nan)
    found = diagnose(empty)
    assert (found.kind, found.culprits) == (Kind.MASKED, (0, 1))
    # one masked row in a window that is normalised as a whole teaches nothing and harms nothing
    rows = [*HEALTHY[:3], (3, 0.0, 0.0, 0)]
    assert diagnose(step(rows), BEFORE).kind is Kind.NOT_REPRODUCED
    # the same row alone in a micro-batch that takes its own mean is 0/0
    units = [replace(RowFigures(*r[:1], r[3], *r[1:3]), micro_batch=i) for i, r in enumerate(rows)]
    found = diagnose(step(units, grad_norm=math.nan, per_micro_batch=True), BEFORE)
    assert (found.kind, found.culprits) == (Kind.MASKED, (3,))
    assert "micro-batch 3" in found.evidence


def fp16(row, loss, norm, n, **more):
    return RowFigures(row, n, loss, norm, loss_fp32=loss, grad_norm_fp32=norm, **more)


def test_an_overflow_in_the_forward_pass():
    rows = [fp16(*r, amax=900.0, safe_scale=2.0**16) for r in HEALTHY[:3]]
    bad = fp16(3, 2.3, 1.2, 50, amax=1.3e5, first_overflow="layers.1.mlp.down_proj", safe_scale=2.0**15)
    found = diagnose(step([*rows, bad], precision="fp16", loss_scale=1024.0), BEFORE)
    assert (found.kind, found.culprits) == (Kind.PRECISION, (3,))
    assert "layers.1.mlp.down_proj" in found.evidence
    assert "bf16 ends it" in found.remedy


def test_an_overflow_at_the_loss_scale():
    rows = [fp16(*r, amax=900.0, safe_scale=2.0**14) for r in HEALTHY[:3]]
    bad = fp16(3, 2.3, 1.2, 50, amax=900.0, safe_scale=256.0)
    found = diagnose(step([*rows, bad], precision="fp16", loss_scale=1024.0), BEFORE)
    assert (found.kind, found.culprits) == (Kind.PRECISION, (3,))
    assert "largest safe scale is 256" in found.evidence
    assert "256 or less" in found.remedy
    # a damaged record that overflows as well as standing out is the data's fault
    worse = fp16(3, 11.0, 50.0, 50, amax=900.0, safe_scale=256.0)
    found = diagnose(step([*rows, worse], precision="fp16", loss_scale=1024.0), BEFORE)
    assert (found.kind, found.culprits) == (Kind.DATA, (3,))
    assert "256" in found.evidence


def test_overflowing_at_2_to_the_24_is_no_finding():
    rows = [fp16(*r, amax=900.0, safe_scale=2.0**14) for r in HEALTHY]
    found = diagnose(step(rows, precision="fp16"), BEFORE)
    assert found.kind is Kind.NOT_REPRODUCED
    found = diagnose(step(rows, precision="fp16", loss_scale=2.0**24), BEFORE)
    assert (found.kind, found.culprits) == (Kind.PRECISION, ())
    assert "All rows alike" in found.evidence


def test_broken_weights_accuse_nobody():
    found = diagnose(step([(i, math.nan, math.nan, 9) for i in range(4)], grad_norm=math.nan))
    assert (found.kind, found.culprits) == (Kind.NOT_REPRODUCED, ())
    assert "weights" in found.evidence


@given(
    shift=st.floats(2.5, 8.0),
    factor=st.floats(5.0, 500.0),
    spread=st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=24),
    tokens=st.integers(5, 300),
)
@settings(max_examples=200, deadline=None)
def test_a_batch_that_spikes_alike_never_accuses(shift, factor, spread, tokens):
    usual = [(i, 2.0 + x, math.exp(x), tokens) for i, x in enumerate(spread)]
    risen = step([(i, loss + shift, norm * factor, n) for i, loss, norm, n in usual])
    log = RunLog(usual_loss=2.0, usual_grad_norm=step(usual).grad_norm)
    for before, said in ((step(usual), None), (None, log), (risen, log), (step(usual), log)):
        found = diagnose(risen, before, log=said)
        assert found.culprits == ()
        assert found.kind is Kind.OPTIMISATION


@given(
    spread=st.lists(st.floats(-0.4, 0.4), min_size=4, max_size=32),
    place=st.integers(0, 31),
    factor=st.floats(30.0, 1000.0),
)
@settings(max_examples=200, deadline=None)
def test_one_row_that_dominates_is_always_named(spread, place, factor):
    rows = [(i, 2.0 + x, math.exp(x), 50) for i, x in enumerate(spread)]
    place %= len(rows)
    before = step([(100 + i, *r[1:]) for i, r in enumerate(rows)])
    rows[place] = (place, 9.0, factor, 50)
    found = diagnose(step(rows), before)
    assert (found.kind, found.culprits) == (Kind.DATA, (place,))
    assert suspects(step(rows), before) == (place,)


def test_shares_add_up_and_json_has_no_nan():
    bad = step([*HEALTHY[:3], (3, math.inf, math.nan, 60)], grad_norm=math.nan)
    found = diagnose(bad).to_json()
    assert json.loads(json.dumps(found, allow_nan=False))["culprits"] == [3]
    healthy = rank(step(HEALTHY))
    assert sum(r.loss_share for r in healthy) == pytest.approx(1)
    assert sum(r.grad_share for r in healthy) == pytest.approx(1)
    whole = step(HEALTHY)
    without = step([r for r in HEALTHY if r[0] != 2])
    assert whole.loss_without([2]) == pytest.approx(without.loss)


def test_the_log_s_history():
    history = [{"step": float(s), "loss": 2.0 + s / 100, "learning_rate": s * 1e-5} for s in range(1, 11)]
    history[4]["loss"] = math.nan
    log = RunLog.from_history([*history, {"step": 11.0, "loss": 9.0, "grad_norm": 80.0, "learning_rate": 5e-5}], 11)
    assert (log.loss, log.grad_norm, log.learning_rate) == (9.0, 80.0, 5e-5)
    assert log.peak_learning_rate == pytest.approx(1e-4)
    assert log.usual_loss == pytest.approx(2.06)
    assert RunLog.from_history([], 3) == RunLog(step=3)
