"""Which devices MindSpore can use here, found by trying: its packages differ in what they were built for."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from .devices import DeviceInfo

#: In order of preference. MindSpore's names; the command line also takes npu and cuda.
TARGETS = ("Ascend", "GPU", "CPU")
_ALIASES = {"ascend": "Ascend", "npu": "Ascend", "gpu": "GPU", "cuda": "GPU", "cpu": "CPU"}


def _quiet() -> None:
    """MindSpore warns at length about every device that is not there. What the user set is left alone."""
    os.environ.setdefault("GLOG_v", "3")


@contextmanager
def _silence() -> Iterator[None]:
    """GLOG_v counts only before MindSpore is imported; its warnings about missing drivers come through logging."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@cache
def _attempt(target: str) -> str:
    """Empty where the target can be used, else MindSpore's reason in one line.

    `set_device` raises RuntimeError where the package does not support the target or the driver is missing, and that is
    the detection: nothing that can be asked beforehand is reliable.
    """
    import mindspore as ms  # noqa: PLC0415 - an extra, slow to import

    try:
        with _silence():
            ms.set_device(target)
    except (RuntimeError, ValueError) as error:
        if ms.get_context("device_target") == target:  # in use already: then it cannot be set any more
            return ""
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return first[:200]
    return ""


def describe_devices() -> list[DeviceInfo]:
    """Every kind of device that MindSpore knows, those that are not there with the reason. Never raises.

    The order of the attempts ends with a device that works, which is then MindSpore's current one.
    """
    if importlib.util.find_spec("mindspore") is None:
        why = "mindspore is not installed: pip install 'corpus-cleanse[mindspore]'"
        return [DeviceInfo("mindspore", available=False, detail=why)]
    _quiet()
    try:
        import mindspore as ms  # noqa: PLC0415
    except Exception as error:  # noqa: BLE001 - a broken installation raises anything, NumPy 2 a SystemError
        return [DeviceInfo("mindspore", available=False, detail=f"mindspore does not load: {error}")]
    found = []
    for target in TARGETS:
        why = _attempt(target)
        detail = why or f"MindSpore {ms.__version__}"
        # bfloat16 products are refused on CPU, and nothing else could be tried where this was written
        found.append(DeviceInfo(target.lower(), available=not why, detail=detail, dtype="" if why else "float32"))
    return found


def pick_device(wanted: str = "auto") -> str:
    """MindSpore's name of the device to use, made its current one: for "auto" the first of Ascend, GPU, CPU.

    Raises ValueError, saying what there is, where `wanted` is not available.
    """
    found = describe_devices()
    there = [device.name for device in found if device.available]
    if not there:
        raise ValueError(found[0].detail)
    name = there[0] if wanted == "auto" else _ALIASES.get(wanted.partition(":")[0].lower(), wanted).lower()
    if name not in there:
        why = next((device.detail for device in found if device.name == name), "unknown to MindSpore")
        raise ValueError(f"device {wanted!r} is not available ({why}); there is {there}")
    import mindspore as ms  # noqa: PLC0415

    target = _ALIASES[name]
    if ms.get_context("device_target") != target:  # a device in use cannot be set again
        ms.set_device(target)
    return target
