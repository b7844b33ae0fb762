"""The guard inside MindSpore's real Model.train."""

import numpy as np
import pytest

from cleanse import replaying as replay
from cleanse.guard import Guard, Ledger

ms = pytest.importorskip("mindspore", reason="this test runs MindSpore's Model.train: pip install mindspore")
ds = pytest.importorskip("mindspore.dataset")


def samples(n, bad=None):
    rng = np.random.default_rng(0)
    for i in range(n):
        x = rng.standard_normal(4).astype(np.float32)
        yield x, np.array([x.sum() if i != bad else 1e6], dtype=np.float32), np.array([i], dtype=np.int64)


def train(folder, *, bad=None, action="go_on", mode=ms.PYNATIVE_MODE, loss_scale=1.0, max_grad_norm=0.5):
    from cleanse.guard.mindspore import GuardCallback, GuardedTrainStep

    ms.set_context(mode=mode)
    ms.set_seed(9)
    data = ds.GeneratorDataset(list(samples(30, bad)), ["x", "y", "row"], shuffle=True, num_parallel_workers=1).batch(4)
    net = ms.nn.Dense(4, 1, weight_init="ones", bias_init="zeros")
    step = GuardedTrainStep(
        ms.nn.WithLossCell(net, ms.nn.MSELoss()),
        ms.nn.SGD(net.trainable_params(), 0.01),
        max_grad_norm=max_grad_norm,
        loss_scale=loss_scale,
    )
    guard = Guard(folder, action=action, rank=0, world_size=1)
    ms.train.Model(step).train(2, data, callbacks=[GuardCallback(guard, loss_scale)], dataset_sink_mode=False)
    return Ledger(folder), net


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_the_ledger_has_the_rows_and_the_norm_before_clipping(tmp_path, mode):
    ledger, net = train(tmp_path, mode=mode, loss_scale=1024.0)
    order = replay.order("mindspore", 30, seed=9, per_device_batch=4)
    assert ledger.last_step() == 16
    for step in range(1, 17):
        assert ledger.at(step).micro_batches == order.at(step).micro_batches
    # the same steps in NumPy: a linear model of which gradient, clipping and update are known in closed form
    rows = list(samples(30))
    weight, bias = np.ones(4), 0.0
    for figures in ledger.figures():
        fed = [rows[i] for i in order.at(int(figures["step"])).rows]
        x, y = np.array([r[0] for r in fed]), np.array([r[1][0] for r in fed])
        residual = x @ weight + bias - y
        gradient = np.append(2 * residual @ x / len(y), 2 * residual.mean())
        norm = float(np.linalg.norm(gradient))
        assert figures["loss"] == pytest.approx(float((residual**2).mean()), rel=1e-3, abs=1e-6)
        assert figures["grad_norm"] == pytest.approx(norm, rel=1e-3, abs=1e-5)
        assert figures["param_norm"] == pytest.approx(float(np.linalg.norm([*weight, bias])), rel=1e-4)
        update = 0.01 * gradient * min(1.0, 0.5 / (norm + 1e-6))
        weight, bias = weight - update[:4], bias - update[4]
    assert net.weight.asnumpy()[0] == pytest.approx(weight, rel=1e-4)


def test_a_spike_stops_the_training(tmp_path):
    order = replay.order("mindspore", 30, seed=9, per_device_batch=4)
    step = next(s for s in range(1, 9) if 17 in order.at(s).rows)
    ledger, _ = train(tmp_path, bad=17, action="stop")
    assert ledger.last_step() == step
    assert (tmp_path / f"step-{step}-rank-0" / "capsule.json").is_file()


def test_an_infinite_gradient_is_not_applied(tmp_path):
    _, net = train(tmp_path, loss_scale=1e38)
    assert np.isfinite(net.weight.asnumpy()).all()


def test_what_cannot_be_done_is_said(tmp_path):
    from cleanse.guard.mindspore import GuardCallback

    with pytest.raises(ValueError, match="go_on or stop"):
        GuardCallback(Guard(tmp_path, action="skip"))
