"""Which devices are there, and what each would be used for. torch is imported only when asked."""

from __future__ import annotations

import importlib.util
import os
import platform
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One kind of device as the torch backend sees it.

    Attributes:
        name: "cpu", "cuda:0", "npu:0", "mps".
        available: Whether a probe can run there now.
        detail: The device's name and memory, or why it is not available.
        dtype: What `--dtype auto` uses there; empty where not available.
    """

    name: str
    available: bool
    detail: str
    dtype: str = ""


def describe_devices() -> list[DeviceInfo]:
    """Every kind of device the torch backend knows, those that are not there with the reason. Never raises."""
    if importlib.util.find_spec("torch") is None:
        return [
            DeviceInfo("torch", available=False, detail="torch is not installed: pip install 'corpus-cleanse[torch]'")
        ]
    try:
        import torch  # noqa: PLC0415 - the whole point of this function
    except (ImportError, OSError) as error:
        return [DeviceInfo("torch", available=False, detail=f"torch does not load: {error}")]
    return [*_cuda(torch), *_npu(torch), _mps(torch), _cpu(torch)]


def pick_device(wanted: str = "auto") -> str:
    """The device to use: `wanted` where it is available, for "auto" the first of cuda, npu, mps, cpu.

    Raises ValueError, saying what there is, where `wanted` is not available.
    """
    found = describe_devices()
    there = [d for d in found if d.available]
    if not there:
        raise ValueError(found[0].detail)
    if wanted == "auto":
        return there[0].name
    alias = "npu" if wanted == "ascend" else wanted
    for device in there:
        if alias in (device.name, device.name.split(":")[0]):
            return device.name
    reasons = "; ".join(f"{d.name}: {d.detail}" for d in found if d.name.split(":")[0] == alias.split(":")[0])
    raise ValueError(f"device {wanted!r} is not available ({reasons or 'unknown'}); there is {[d.name for d in there]}")


def pick_dtype(device: str, wanted: str = "auto") -> str:
    """The type for a device, "float32" or "bfloat16"; "auto" is what `describe_devices` shows.

    float32 on a CPU, so that verdicts do not depend on which instructions it has. Raises ValueError for other types:
    half precision overflows on the very records that are to be measured.
    """
    names = {"fp32": "float32", "float32": "float32", "bf16": "bfloat16", "bfloat16": "bfloat16"}
    if wanted == "auto":
        return next((d.dtype for d in describe_devices() if d.name == device), "float32")
    if wanted not in names:
        raise ValueError(f"dtype {wanted!r}: the probe runs in fp32 or bf16 (what fp16 would do is predicted from it)")
    return names[wanted]


def _gib(n: int) -> str:
    return f"{n / 2**30:.0f} GiB"


def _cuda(torch: Any) -> list[DeviceInfo]:
    if not torch.cuda.is_available():
        built = torch.version.cuda or getattr(torch.version, "hip", None)
        why = "no usable GPU or driver" if built else f"this torch ({torch.__version__}) is built without CUDA"
        return [DeviceInfo("cuda", available=False, detail=why)]
    out = []
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        dtype = "bfloat16" if p.major >= 8 else "float32"  # noqa: PLR2004 - Ampere
        out.append(DeviceInfo(f"cuda:{i}", available=True, detail=f"{p.name}, {_gib(p.total_memory)}", dtype=dtype))
    return out


def _npu(torch: Any) -> list[DeviceInfo]:
    if importlib.util.find_spec("torch_npu") is None:
        return [DeviceInfo("npu", available=False, detail="torch_npu is not installed")]
    try:
        import torch_npu  # noqa: F401, PLC0415 - registers torch.npu

        if not torch.npu.is_available():
            return [DeviceInfo("npu", available=False, detail="torch_npu finds no Ascend device or driver")]
        return [
            DeviceInfo(f"npu:{i}", available=True, detail=str(torch.npu.get_device_name(i)), dtype="bfloat16")
            for i in range(torch.npu.device_count())
        ]
    except Exception as error:  # noqa: BLE001 - whatever a driver raises is the answer
        return [DeviceInfo("npu", available=False, detail=f"torch_npu does not load: {error}")]


def _mps(torch: Any) -> DeviceInfo:
    if torch.backends.mps.is_available():
        return DeviceInfo("mps", available=True, detail=platform.machine(), dtype="float32")
    return DeviceInfo("mps", available=False, detail="no Apple GPU here")


def _cpu(torch: Any) -> DeviceInfo:
    affinity = getattr(os, "sched_getaffinity", None)
    usable = len(affinity(0)) if affinity else os.cpu_count() or 1
    detail = f"{usable} cores, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    return DeviceInfo("cpu", available=True, detail=detail, dtype="float32")
