"""Whether every node of a cluster can do the work: it has this package, and sees the files that jobs will name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cleanse.atomic import TEMPORARY
from cleanse.engines.ray_worker import Home
from cleanse.errors import CleanseError

_PATIENCE_SECONDS = 10.0  # a network disk may show a new file late
_MOST_FILES = 1_000  # that every node is asked for: of more, some from everywhere


@dataclass(frozen=True)
class _Report:
    """What one node said."""

    name: str
    trouble: str | None  # why cleanse cannot be imported there
    version: str
    missing: Sequence[str]


def nodes() -> list[Mapping[str, Any]]:
    """The nodes that can be given jobs: alive, with at least one processor to offer."""
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]


def fitting(need: Mapping[str, float]) -> int:
    """How many workers that each need so much of the resources the cluster holds as it is."""
    return sum(
        int(min(node["Resources"].get(name, 0) / amount for name, amount in need.items() if amount)) for node in nodes()
    )


def check(home: Home, folder: Path | None, files: Iterable[str], runtime_env: Mapping[str, Any] | None) -> None:
    """Asks every node for the package, for a token in ``folder``, and for ``files``.

    Raises:
        CleanseError: a node lacks one of them; the message names the node and says what to do.
    """
    wanted = sorted(set(files))
    wanted = wanted[:: len(wanted) // _MOST_FILES + 1]
    if not all(map(os.path.isabs, [*wanted, str(folder or os.sep)])):
        wanted.append(home.folder)  # workers, too, go there to see what is named from there
    sized = [(os.path.abspath(name), _size(name)) for name in wanted]  # noqa: PTH100 - as it is named, links and all
    token = None
    if folder is not None:
        token = (folder / f"token-{token_hex(8)}{TEMPORARY}").absolute()
        token.touch()
    try:
        reports = _ask(home, str(token) if token else None, sized, runtime_env)
    finally:
        if token:
            token.unlink(missing_ok=True)
    for report in reports:
        if trouble := _trouble(report, home, str(token), folder):
            raise CleanseError(trouble)


def _ask(
    home: Home, token: str | None, files: Sequence[tuple[str, int | None]], runtime_env: Mapping[str, Any] | None
) -> list[_Report]:
    there = nodes()
    look = ray.remote(num_cpus=0, max_retries=2, runtime_env=runtime_env)(_looking())
    asked = [
        look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            list(home.paths), token, list(files), _PATIENCE_SECONDS
        )
        for node in there
    ]
    reports = []
    for node, answer in zip(there, asked, strict=True):
        try:
            host, trouble, version, missing = ray.get(answer)
        except ray.exceptions.RayError as error:
            if node["NodeID"] in {alive["NodeID"] for alive in nodes()}:
                raise CleanseError(f"node {node['NodeManagerAddress']} does not answer: {error}") from error
            continue  # it has left meanwhile, and will be given no job
        reports.append(_Report(f"{host} ({node['NodeManagerAddress']})", trouble, version, missing))
    return reports


def _looking() -> Callable[..., tuple[str, str | None, str, list[str]]]:
    """The function that looks around on a node. It travels by value: the node may not have this package at all."""

    def look(
        paths: list[str], token: str | None, files: list[tuple[str, int | None]], patience: float
    ) -> tuple[str, str | None, str, list[str]]:
        import os  # noqa: PLC0415
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415
        import time  # noqa: PLC0415

        host = socket.gethostname()
        sys.path.extend(path for path in paths if path not in sys.path and os.path.isdir(path))  # noqa: PTH112
        try:
            import cleanse  # noqa: PLC0415
        except Exception as error:  # noqa: BLE001 - a library it needs may fail in any way
            return host, f"{type(error).__name__}: {error}", "", []
        deadline = time.monotonic() + patience
        while token is not None and not os.path.exists(token) and time.monotonic() < deadline:  # noqa: PTH110
            time.sleep(0.2)
        missing = [] if token is None or os.path.exists(token) else [token]  # noqa: PTH110
        for path, size in files:
            if not os.path.exists(path) or (size is not None and os.path.getsize(path) != size):  # noqa: PTH110, PTH202
                missing.append(path)
        return host, None, cleanse.__version__, missing

    return look


def _trouble(report: _Report, home: Home, token: str, folder: Path | None) -> str | None:
    node = f"node {report.name}"
    if report.trouble is not None:
        return (
            f"{node} cannot import cleanse ({report.trouble}): install corpus-cleanse {home.version} on every node, "
            "in the environment that Ray was started from"
        )
    if report.version != home.version:
        return (
            f"{node} has cleanse {report.version}, and {home.version} runs here: install the same version on every node"
        )
    if token in report.missing:
        assert folder is not None
        return (
            f"{node} does not see the output folder {folder.parent}: "
            "name a folder that all nodes share, or a URL (s3://...), with -o"
        )
    if report.missing:
        return (
            f"{node} does not see {report.missing[0]} as it is here: inputs, rule packs and models must lie at the "
            "same path on every node (in a folder that all share), or be named by a URL (s3://...)"
        )
    return None


def _size(name: str) -> int | None:
    return Path(name).stat().st_size if Path(name).is_file() else None
