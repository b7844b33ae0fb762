"""The plugin that programs such as ms-swift load by its path: every Trainer of the process is guarded."""

import runpy
from pathlib import Path

import pytest

from cleanse import replaying as replay
from cleanse.guard import Ledger

torch = pytest.importorskip("torch", reason="the Trainer needs torch")
transformers = pytest.importorskip("transformers", reason="this test runs the real Hugging Face Trainer")
pytest.importorskip("accelerate", reason="this test runs the real Hugging Face Trainer")


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        return {"x": torch.full((3,), float(i)), "label": 0.0}


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Linear(3, 1)
        self.seen = []

    def forward(self, x, labels=None):
        if self.training:
            self.seen.append(tuple(int(v) for v in x[:, 0].tolist()))
        return {"loss": (self.w(x) / 100).pow(2).mean(), "logits": x}


def arguments(folder):
    return transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        max_grad_norm=0.0,
        num_train_epochs=1,
        seed=8,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )


@pytest.fixture
def plugin(monkeypatch, tmp_path):
    import cleanse.guard.plugin as module

    monkeypatch.setenv("CLEANSE_GUARD", str(tmp_path / "guard"))
    yield module
    module.uninstall()


def test_a_trainer_that_others_made_is_guarded(plugin, tmp_path):
    plain = transformers.Trainer.train
    assert runpy.run_path(str(Path(plugin.__file__)))["install"]  # by its path, as an external plugin
    assert transformers.Trainer.train is not plain
    transformers.Trainer.train = plain
    plugin.install()
    model = Tiny()
    trainer = transformers.Trainer(model, arguments(tmp_path / "out"), train_dataset=Rows(), eval_dataset=Rows())
    trainer.train()
    trainer.evaluate()
    order = replay.order("hf", 20, seed=8, per_device_batch=4)
    ledger = Ledger(tmp_path / "guard")
    assert [ledger.at(s).micro_batches[0][0] for s in range(1, 6)] == model.seen
    assert [order.at(s).rows for s in range(1, 6)] == model.seen
    assert all(f["grad_norm"] > 0 for f in ledger.figures())


def test_a_stream_is_trained_without_a_guard_but_not_without_its_skip_list(plugin, tmp_path, monkeypatch, caplog):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter({"x": torch.zeros(3)} for _ in range(8))

    plugin.install()
    args = arguments(tmp_path / "out")
    args.max_steps = 1
    trainer = transformers.Trainer(Tiny(), args, train_dataset=Stream())
    with caplog.at_level("WARNING", logger="cleanse.guard"):
        trainer.train()
    assert "without a guard" in caplog.text
    replay.SkipList(frozenset({1})).write(tmp_path / "skip.json")
    monkeypatch.setenv("CLEANSE_SKIP", str(tmp_path / "skip.json"))
    with pytest.raises(TypeError, match="streamed"):
        transformers.Trainer(Tiny(), args, train_dataset=Stream()).train()
