"""The engine for clusters, on a real cluster of three nodes on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jobs
import pytest

from cleanse.engines.failure import InternalError
from cleanse.engines.job import Job
from cleanse.engines.local import LocalEngine
from cleanse.errors import CleanseError, UsageError
from scripts.local_cluster import STORE_BYTES, cluster

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'corpus-cleanse[ray]'")


@pytest.fixture(scope="module")
def three() -> Iterator[Any]:
    """Three nodes of one processor each; one of them says that it has an NPU."""
    with cluster(2) as made:
        made.add_node(num_cpus=1, object_store_memory=STORE_BYTES, resources={"NPU": 1})
        made.wait_for_nodes()
        ray.init(made.address, log_to_driver=False, logging_level="ERROR")
        yield made


@pytest.fixture
def engine(three: Any) -> Iterator[Any]:
    from cleanse.engines.ray_data import RayEngine

    with RayEngine(device="cpu") as made:  # or models would run on the one node with an NPU
        yield made
    assert ray.is_initialized(), "a Ray that someone else started is left running"


def _jobs(function, arguments, **more):
    return [Job(function, n, f"piece {n}", **more) for n in arguments]


def _ignore(*_: int) -> None:
    pass


@pytest.mark.parametrize("measures", [False, True])
def test_results_come_in_order_and_progress_adds_up(engine: Any, measures: bool) -> None:
    seen = [0, 0, 0]

    def report(*more: int) -> None:
        for i, n in enumerate(more):
            seen[i] += n

    results = list(engine.run(_jobs(jobs.slow_square, range(9), measures=measures), report))
    assert [square for square, _ in results] == [n * n for n in range(9)]
    assert seen == [90, 9, 4]
    processes = {pid for _, pid in results}
    assert os.getpid() not in processes
    assert 1 <= len(processes) <= 3 or not measures, "a process of the pool takes several jobs, and keeps its model"


def test_some_run_a_model_and_some_do_not(engine: Any) -> None:
    mixed = [Job(jobs.slow_square, n, "", measures=n in {1, 2}) for n in range(4)]
    assert [square for square, _ in engine.run(mixed, _ignore)] == [0, 1, 4, 9]
    assert list(engine.run([], _ignore)) == []


@pytest.mark.parametrize("function", [jobs.fail_on_three, jobs.speak_to_user, jobs.fill_disk])
def test_a_failure_is_told_as_the_local_engine_tells_it(engine: Any, function) -> None:
    work = _jobs(function, [3])
    with pytest.raises(CleanseError) as local, LocalEngine(1) as here:
        list(here.run(work, _ignore))
    with pytest.raises(CleanseError) as told:
        list(engine.run(work, _ignore))
    assert (type(told.value), str(told.value)) == (type(local.value), str(local.value))
    assert str(told.value).startswith("piece 3: ")
    if isinstance(told.value, InternalError):
        assert "in fail_on_three" in told.value.trace


def test_a_failure_ends_what_still_runs(engine: Any, tmp_path: Path) -> None:
    work = [Job(jobs.end_late, str(tmp_path), "late"), Job(jobs.wait_and_fail, str(tmp_path), "failing")]
    with pytest.raises(CleanseError, match="failing: the file is gone"):
        list(engine.run(work, _ignore))
    time.sleep(3.5)
    assert (tmp_path / "begun").exists()
    assert not (tmp_path / "ended").exists()


@pytest.mark.parametrize("measures", [False, True])
def test_a_job_whose_worker_was_killed_is_begun_again(engine: Any, tmp_path: Path, measures: bool) -> None:
    seen = []
    work = [Job(jobs.kill_once, (str(tmp_path), n), f"piece {n}", measures=measures) for n in range(5)]
    results = list(engine.run(work, lambda *more: seen.append(more)))
    assert (tmp_path / "killed").exists()
    assert [n for n, _ in results] == [0, 1, 2, 3, 4]
    assert seen == [(10, 1, 0)] * 5, "what a lost attempt reported does not count"


def test_a_job_that_ends_every_worker_is_given_up(engine: Any) -> None:
    with pytest.raises(CleanseError, match=r"piece 1: its worker process.* lost 5 times.*--workers.*same command"):
        list(engine.run(_jobs(jobs.always_die, range(3)), _ignore))


@pytest.mark.parametrize("measures", [False, True])
def test_a_job_of_a_lost_node_is_begun_again(engine: Any, three: Any, tmp_path: Path, measures: bool) -> None:
    added = three.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
    three.wait_for_nodes()

    def lose() -> None:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("begun-*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        three.remove_node(added, allow_graceful=False)

    losing = threading.Thread(target=lose)
    losing.start()
    try:
        work = [Job(jobs.outlive, (str(tmp_path), n, added.node_id), f"piece {n}", measures=measures) for n in range(8)]
        nodes = list(engine.run(work, _ignore))
    finally:
        losing.join()
    assert len(nodes) == 8
    assert list(tmp_path.glob("begun-*")), "the node was lost before it had begun anything: the test shows nothing"
    assert added.node_id not in nodes


def test_two_attempts_at_once_make_one_file(engine: Any, tmp_path: Path) -> None:
    work = [Job(jobs.write_slowly, (str(tmp_path / "part"), 100), f"attempt {i}") for i in range(2)]
    assert list(engine.run(work, _ignore)) == [100, 100]
    assert [path.name for path in tmp_path.iterdir()] == ["part"]
    assert (tmp_path / "part").read_text() == "".join(f"{i}\n" for i in range(100))


@pytest.mark.parametrize("measures", [False, True])
def test_workers_use_one_thread_each(engine: Any, measures: bool) -> None:
    assert list(engine.run(_jobs(jobs.settings, range(2), measures=measures), _ignore)) == [(1, "1")] * 2


def test_relative_names_are_seen_from_here(three: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cleanse.engines.ray_data import RayEngine

    (tmp_path / "here.txt").write_text("seen")
    monkeypatch.chdir(tmp_path)
    with RayEngine() as engine:
        assert list(engine.run(_jobs(jobs.relative, ["here.txt"]), _ignore)) == ["seen"]


def test_a_model_runs_where_the_accelerators_are(three: Any) -> None:
    from cleanse.engines.ray_data import RayEngine

    with RayEngine(device="ascend") as engine:
        nodes = set(engine.run(_jobs(jobs.where, range(3), measures=True), _ignore))
    assert nodes == {node["NodeID"] for node in ray.nodes() if node["Alive"] and "NPU" in node["Resources"]}


def test_resources_that_no_node_has_are_an_error_and_not_a_wait(three: Any) -> None:
    from cleanse.engines.ray_data import RayEngine

    with (
        RayEngine(resources={"GPU": 2}) as engine,
        pytest.raises(CleanseError, match=r"no node .* offers GPU=2 .*--resources"),
    ):
        list(engine.run(_jobs(jobs.slow_square, range(2), measures=True), _ignore))


def test_the_settings_of_the_caller_stay(engine: Any) -> None:
    from ray.data import DataContext

    context = DataContext.get_current()
    before = (context.enable_progress_bars, context.print_on_execution_start, context.max_errored_blocks)
    for _ in engine.run(_jobs(jobs.slow_square, range(2)), _ignore):
        assert DataContext.get_current() is context
    assert before == (context.enable_progress_bars, context.print_on_execution_start, context.max_errored_blocks)


def test_a_shared_folder_is_seen_by_all(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("x")
    engine.check_folder(tmp_path, [str(tmp_path / "input"), "s3://bucket/input"])
    assert [path.name for path in tmp_path.iterdir()] == ["input"]


@pytest.fixture
def mine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A path that leads to a folder in this process and nowhere in any other."""
    monkeypatch.setattr("cleanse.engines.ray_nodes._PATIENCE_SECONDS", 0.2)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    os.dup2(descriptor, 900)
    os.close(descriptor)
    yield Path("/proc/self/fd/900")
    os.close(900)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the /proc of Linux")
def test_a_folder_that_a_node_does_not_see_is_an_error(engine: Any, mine_alone: Path) -> None:
    (mine_alone / ".cleanse").mkdir()
    with pytest.raises(CleanseError, match=r"node \S+ \([0-9.]+\) does not see the output folder .*s3://"):
        engine.check_folder(mine_alone / ".cleanse")
    assert list((mine_alone / ".cleanse").iterdir()) == []
    (mine_alone / "pack.toml").write_text("")
    with pytest.raises(CleanseError, match=r"node \S+ .* does not see \S*pack\.toml .*same path on every node"):
        engine.check_folder(None, [str(mine_alone / "pack.toml")])


def test_another_version_on_a_node_is_an_error(three: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cleanse.engines.ray_data import RayEngine

    monkeypatch.setattr("cleanse.engines.ray_worker.__version__", "9.9")
    with RayEngine() as engine:
        with pytest.raises(CleanseError, match=r"node .* has cleanse .*, and 9\.9 runs here: install the same"):
            engine.check_folder(tmp_path)
        with pytest.raises(CleanseError, match=r"piece 0: node .* has cleanse .*, and 9\.9 .* install the same"):
            list(engine.run(_jobs(jobs.slow_square, [0]), _ignore))


def test_a_node_without_the_package_is_an_error(tmp_path: Path) -> None:
    from ray import cloudpickle

    from cleanse.engines import ray_nodes
    from cleanse.engines.ray_worker import Home

    (tmp_path / "look").write_bytes(cloudpickle.dumps(ray_nodes._looking()))
    code = (
        "import pickle, sys; sys.modules['cleanse'] = None\n"
        f"look = pickle.loads(open({str(tmp_path / 'look')!r}, 'rb').read())\n"
        "print(look([], None, [], 0.0)[1])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert said.startswith("ModuleNotFoundError")
    trouble = ray_nodes._trouble(ray_nodes._Report("n1 (10.0.0.1)", said, "", []), Home.here(), "", None)
    assert trouble is not None
    assert trouble.startswith("node n1 (10.0.0.1) cannot import cleanse (ModuleNotFoundError")
    assert "on every node" in trouble


def test_an_address_must_be_that_of_the_connection(three: Any) -> None:
    from cleanse.engines.ray_data import RayEngine

    with RayEngine(three.address) as engine:
        assert list(engine.run(_jobs(jobs.fail_on_three, [1]), _ignore)) == [1]
    with RayEngine("10.1.2.3:6379") as engine, pytest.raises(UsageError, match=r"is connected .* 10\.1\.2\.3:6379"):
        list(engine.run(_jobs(jobs.fail_on_three, [1]), _ignore))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", r"no Ray cluster can be used at 127\.0\.0\.1:1: .*refused.*ray start --head"),
        ("ray://10.1.2.3:10001", "run the command on a node of the cluster"),
    ],
)
def test_an_address_where_no_cluster_is_says_so_at_once(address: str, words: str, tmp_path: Path) -> None:
    code = (
        "from cleanse.engines.ray_data import RayEngine\n"
        "from cleanse.errors import CleanseError\n"
        "try:\n    RayEngine({!r}).check_folder(None)\nexcept CleanseError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", code.format(address)]  # this process has a connection already
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert re.search(words, said), said


def test_what_ray_says_is_told_in_one_line_without_its_traceback() -> None:
    from cleanse.engines.ray_data import _lost

    cause = ray.exceptions.OwnerDiedError("ab12", "", "")
    error = ray.exceptions.RayTaskError("run_rows", "Traceback ...\n  File ...", cause)
    said = str(_lost(error, "shard 3 of d.jsonl"))
    assert said.startswith("shard 3 of d.jsonl, or a piece behind it: the cluster failed (OwnerDiedError: ")
    assert "ab12" in said
    assert "Traceback" not in said
    assert "\n" not in said
