"""Devices are found by trying, and said honestly."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cleanse.probes import mindspore_devices
from cleanse.probes.mindspore_devices import describe_devices, pick_device


def test_without_mindspore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mindspore_devices.importlib.util, "find_spec", lambda _: None)
    (only,) = describe_devices()
    assert not only.available
    assert "corpus-cleanse[mindspore]" in only.detail
    with pytest.raises(ValueError, match=r"corpus-cleanse\[mindspore\]"):
        pick_device()


def test_importing_the_device_file_imports_no_framework() -> None:
    code = (
        "import sys, cleanse.probes.mindspore_devices, cleanse.probes.mindspore_shapes;"
        "assert not {'mindspore', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_device_that_is_not_there_is_refused_with_its_reason() -> None:
    pytest.importorskip("mindspore", reason="mindspore is not installed: see `make mindspore`")
    found = {device.name: device for device in describe_devices()}
    assert list(found) == ["ascend", "gpu", "cpu"]
    assert found["cpu"].available
    assert pick_device("cpu") == "CPU"
    for name, alias in (("ascend", "npu:0"), ("gpu", "cuda")):
        if found[name].available:
            assert pick_device(alias).lower() == name
        else:
            assert found[name].detail
            with pytest.raises(ValueError, match="is not available"):
                pick_device(alias)
    pick_device("cpu")
    with pytest.raises(ValueError, match="unknown to MindSpore"):
        pick_device("abacus")
