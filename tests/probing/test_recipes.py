"""How a probe is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleanse.errors import UsageError
from cleanse.probing import recipes
from cleanse.probing.recipes import settle
from cleanse.probing.settings import ProbeSettings


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "find_spec", lambda _: object())


def test_none_is_none_and_refuses_options() -> None:
    assert settle("none", {"budget": None}) == (None, "")
    with pytest.raises(UsageError, match="budget"):
        settle("none", {"budget": 0.1})


def test_options_override_a_recipe() -> None:
    assert settle("auto", {}) == (ProbeSettings(), "")
    thorough, _ = settle("thorough", {})
    assert thorough is not None
    assert (thorough.scope, thorough.windows) == ("all", 4)
    mine, _ = settle("thorough", {"windows": 2, "budget": 0.01})
    assert mine is not None
    assert (mine.scope, mine.windows, mine.budget) == ("all", 2, 0.01)


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('summary = "mine"\nmodel = "some/model"\n')
    settings, _ = settle(str(path), {})
    assert settings is not None
    assert settings.model == "some/model"
    path.write_text("modell = 1\n")
    with pytest.raises(UsageError, match="no setting is called 'modell'"):
        settle(str(path), {})
    path.write_text("model = \n")
    with pytest.raises(UsageError, match="not valid TOML"):
        settle(str(path), {})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"budget": 0.9}, "budget"),
        ({"scope": "some"}, "scope"),
        ({"backend": "jax"}, "backend"),
        ({"windows": 0}, "window"),
    ],
)
def test_values_that_mean_nothing_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        settle("auto", given)


def test_auto_goes_on_without_a_framework_and_options_insist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "find_spec", lambda _: None)
    settings, remark = settle("auto", {})
    assert settings is None
    assert "pip install 'corpus-cleanse[torch]'" in remark
    with pytest.raises(UsageError, match="not installed"):
        settle("auto", {"budget": 0.01})
    with pytest.raises(UsageError, match="not installed"):
        settle("thorough", {})


def test_fp16_is_the_precision_of_the_run_to_come_not_of_the_probe() -> None:
    asked, _ = settle("auto", {"dtype": "fp16", "loss_scale": 128.0})
    assert asked is not None
    assert (asked.dtype, asked.fp16, asked.loss_scale) == ("auto", True, 128.0)


def test_a_model_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(UsageError, match="no model at /nowhere"):
        settle("auto", {"model": "/nowhere"})
