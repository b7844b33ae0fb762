"""Whole scans on clusters of one, two and three nodes, disturbed and undisturbed: the bytes of the local engine."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from cleanse.config import ScanConfig
from cleanse.pipeline import scan
from cleanse.probing.settings import ProbeSettings
from cleanse.sources import ReadOptions
from scripts.kill_test import digest
from scripts.local_cluster import cluster, grow
from scripts.make_sample import sample

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'corpus-cleanse[ray]'")

Bytes = dict[str, str]
SMALL = 3_000  # bytes per unit, where a model reads all that is in it


def scanned(data: Path | str, out: Path, shard_bytes: int = 6_000, **more: Any) -> Bytes:
    """Scans in many units, and gives the digests of what must not depend on the engine."""
    more.setdefault("probe", ProbeSettings(scope="suspects"))
    scan(ScanConfig((str(data),), out, read=ReadOptions(shard_bytes=shard_bytes), **more))
    found = digest(out)
    assert {"findings.parquet", "triggers.parquet"} <= set(found)
    assert any(name.startswith("clean/") for name in found)
    assert any(name.startswith("quarantine/") for name in found)
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few units, with a few records that the probe is asked about."""
    path = tmp_path_factory.mktemp("in") / "sample.jsonl"
    path.write_bytes(sample(30))
    return path


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many units, so that there is a middle to be disturbed in."""
    path = tmp_path_factory.mktemp("in") / "sample.jsonl"
    path.write_bytes(sample(400))
    return path


@pytest.fixture(scope="module")
def undisturbed(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Bytes:
    return scanned(many, tmp_path_factory.mktemp("out") / "o", workers=1, probe=None)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of one node that tests let grow, and the connection of this process to it."""
    with cluster(1) as made:
        ray.init(made.address, log_to_driver=False, logging_level="ERROR")
        yield made


def test_one_two_and_three_nodes_give_the_same_bytes(data: Path, nodes: Any, tmp_path: Path) -> None:
    local = scanned(data, tmp_path / "local", SMALL, workers=1)
    assert "probe.parquet" in local
    for n_nodes in (1, 2, 3):
        grow(nodes, n_nodes)
        assert scanned(data, tmp_path / str(n_nodes), SMALL, engine="ray") == local, f"{n_nodes} nodes"


def test_real_data_gives_the_same_bytes(shared_data: Path, nodes: Any, tmp_path: Path) -> None:
    grow(nodes, 2)
    folder = tmp_path / "in"
    folder.mkdir()
    for path in sorted(shared_data.glob("*/*.jsonl")):
        with path.open("rb") as lines:
            (folder / path.name).write_bytes(b"".join(islice(lines, 40)))
    local = scanned(folder, tmp_path / "local", workers=1, probe=None)
    assert scanned(folder, tmp_path / "ray", engine="ray", probe=None) == local


@contextmanager
def meanwhile(out: Path, disturb: Callable[[], None]) -> Iterator[None]:
    """Does something once the first unit has been inspected, while others are still to come."""
    hit = []

    def wait() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if list((out / ".cleanse" / "inspect").glob("*.json")):
                disturb()
                hit.append(True)
                return
            time.sleep(0.005)

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()
    assert hit, "the scan was over before it could be disturbed"


def test_killed_workers_do_not_change_a_byte(many: Path, undisturbed: Bytes, nodes: Any, tmp_path: Path) -> None:
    grow(nodes, 2)
    killed = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while not killed and time.monotonic() < deadline:
            for process in _workers(nodes):
                process.kill()
                killed.append(process.pid)

    with meanwhile(tmp_path / "o", kill):
        found = scanned(many, tmp_path / "o", engine="ray", probe=None)
    assert killed
    assert found == undisturbed


def _workers(nodes: Any) -> list[psutil.Process]:
    """The processes of this cluster that run a job right now."""
    found = []
    for node in nodes.list_all_nodes():
        for process in psutil.Process(node.all_processes["raylet"][0].process.pid).children():
            with suppress(psutil.Error):
                if process.cmdline()[0].startswith("ray::MapBatches(run_rows)"):
                    found.append(process)
    return found


def test_a_lost_node_does_not_change_a_byte(many: Path, undisturbed: Bytes, nodes: Any, tmp_path: Path) -> None:
    grow(nodes, 3)
    lost = next(iter(nodes.worker_nodes))
    with meanwhile(tmp_path / "o", lambda: nodes.remove_node(lost, allow_graceful=False)):
        found = scanned(many, tmp_path / "o", engine="ray", probe=None)
    assert len([node for node in ray.nodes() if node["Alive"]]) == 2
    assert found == undisturbed


@contextmanager
def own_ray() -> Iterator[dict[str, str]]:
    """The environment for a command that starts a Ray of its own, of which nothing is left when it ends."""
    with tempfile.TemporaryDirectory(prefix="ct", dir="/tmp") as folder:  # names of sockets must be short
        env = {**os.environ, "RAY_TMPDIR": folder}
        env.pop("RAY_ADDRESS", None)
        yield env
        assert _gone(folder), "Ray outlived the command that started it"


def command(source: str, out: str) -> list[str]:
    options = ["--engine", "ray", "--workers", "1", "--probe", "none", "--shard-bytes", "6KB", "--quiet"]
    return [sys.executable, "-m", "cleanse", "scan", source, "-o", out, *options]


def test_a_killed_command_goes_on_and_leaves_no_ray_behind(many: Path, undisturbed: Bytes, tmp_path: Path) -> None:
    out = tmp_path / "o"
    with own_ray() as env:
        process = subprocess.Popen(command(str(many), str(out)), env=env, start_new_session=True)
        with meanwhile(out, lambda: os.killpg(process.pid, signal.SIGKILL)):
            process.wait()
        assert process.returncode == -signal.SIGKILL
    with own_ray() as env:
        said = subprocess.run(command(str(many), str(out)), check=False, env=env, capture_output=True, text=True)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")
    assert digest(out) == undisturbed


def test_from_one_place_to_another_by_url(data: Path, tmp_path: Path, s3: Any) -> None:
    source = s3.put("in/sample.jsonl", data.read_bytes())
    local = scanned(source, tmp_path / "local", workers=1, probe=None)
    with own_ray() as env:
        said = subprocess.run(command(source, f"{s3.url}/out"), check=False, env=env, capture_output=True, text=True)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")
    assert {name: hashlib.sha256(s3.get(f"out/{name}")).hexdigest() for name in local} == local
    assert not [key for key in s3.keys("out/") if key.endswith(".tmp")]


def _gone(folder: str, seconds: float = 30) -> bool:
    """Whether no process is left whose command names a folder."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not [p for p in psutil.process_iter(["cmdline"]) if folder in " ".join(p.info["cmdline"] or ())]:
            return True
        time.sleep(0.1)
    return False
