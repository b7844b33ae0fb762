from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cleanse.commands.scan import parse_resources
from cleanse.config import ScanConfig
from cleanse.engines.choosing import before_ray, engine_of
from cleanse.engines.local import LocalEngine
from cleanse.errors import UsageError
from cleanse.probing.settings import ProbeSettings


def config(**more) -> ScanConfig:
    return ScanConfig(("d.jsonl",), Path("o"), **more)


def test_the_local_engine_needs_no_ray() -> None:
    assert isinstance(engine_of(config(workers=1)), LocalEngine)
    code = "import sys, cleanse.pipeline; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cleanse.engines.ray_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'corpus-cleanse\[ray\]'"):
        engine_of(config(engine="ray"))


def test_files_of_the_request_must_be_seen_by_all(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'corpus-cleanse[ray]'")
    pack, model = tmp_path / "my.toml", tmp_path / "model"
    pack.write_text("")
    model.mkdir()
    engine = engine_of(
        config(engine="ray", packs=("default", str(pack)), probe=ProbeSettings(model=str(model), adapter="some/hub-id"))
    )
    assert engine._files == (str(pack), str(model))


def test_what_ray_reads_when_it_starts_can_be_overruled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.delenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", raising=False)
    before_ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"
    assert os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] == "0"


@pytest.mark.parametrize("more", [{"address": "auto"}, {"resources": (("GPU", 1.0),)}])
def test_a_cluster_is_asked_for_only_with_its_engine(more: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="--engine ray"):
        config(**more)
    assert config(engine="ray", **more).identity("r") == config().identity("r"), "the engine decides no byte"


def test_resources_have_amounts() -> None:
    assert parse_resources(None) == ()
    assert parse_resources("GPU=0.5, CPU=2,accelerator_type:H200=0.001") == (
        ("GPU", 0.5),
        ("CPU", 2.0),
        ("accelerator_type:H200", 0.001),
    )
    for wrong in ("GPU", "GPU=", "=1", "GPU=one", "GPU=1;CPU=2"):
        with pytest.raises(UsageError, match="names no resources"):
            parse_resources(wrong)
    with pytest.raises(UsageError, match="above 0"):
        config(engine="ray", resources=(("GPU", 0.0),))
