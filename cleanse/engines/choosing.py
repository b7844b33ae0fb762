"""From a scan's request to the engine that runs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cleanse.config import ScanConfig
from cleanse.engines.local import LocalEngine
from cleanse.errors import UsageError

if TYPE_CHECKING:
    from cleanse.engines.ray_data import RayEngine

_BEFORE_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing about anybody's data leaves the machine
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # a warning per actor would run across the terminal
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # nodes have their own environments, and no copy of this folder is wanted
}


def engine_of(config: ScanConfig) -> LocalEngine | RayEngine:
    """The engine that was asked for, which starts nothing before its first use.

    Raises UsageError when its library is not installed.
    """
    if config.engine == "local":
        return LocalEngine(config.n_workers)
    before_ray()
    try:
        from cleanse.engines.ray_data import RayEngine  # noqa: PLC0415 - an extra, slow to import
    except ImportError as error:
        raise UsageError(f"the engine for clusters needs Ray ({error}): pip install 'corpus-cleanse[ray]'") from error
    return RayEngine(
        config.address,
        n_tasks=config.workers,
        device=config.probe.device if config.probe else "auto",
        resources=dict(config.resources),
        files=_files(config),
    )


def before_ray() -> None:
    """Sets what Ray reads when it is imported and when it starts; what the user set stays."""
    for name, value in _BEFORE_RAY.items():
        os.environ.setdefault(name, value)


def _files(config: ScanConfig) -> list[str]:
    """What jobs read by its path here: packs, models, tokenizers. A hub id, or the name of a pack, is no path."""
    named: list[str | None] = [name for name in config.packs if Path(name).is_file()]
    if config.probe:
        named += [config.probe.model, config.probe.adapter]
    if config.tokens:
        named += [config.tokens.tokenizer, config.tokens.chat_template, config.tokens.glitch_list, config.tokens.model]
    return [name for name in named if name and "\n" not in name and Path(name).exists()]
