"""A Ray cluster of several nodes on this machine, which leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cleanse.engines.choosing import before_ray

STORE_BYTES = 80 << 20  # Ray wants 75 MiB at least
_CHECK_MS = 1_000  # a node that refuses five calls in turn is lost; Ray's own period is three seconds


@contextmanager
def cluster(n_nodes: int) -> Iterator[Any]:
    """A ``ray.cluster_utils.Cluster`` of nodes with one processor each, all processes of which end with the block.

    Its files lie in a folder of its own, where no other Ray on this machine looks for a cluster to join. The folder's
    name is short: those of sockets below it must not be longer than 107 characters.
    """
    before_ray()
    import ray  # noqa: PLC0415 - an extra, and what was set before counts
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    folder = Path(tempfile.mkdtemp(prefix="ct", dir="/tmp"))
    kept = os.environ.get("RAY_TMPDIR")
    os.environ["RAY_TMPDIR"] = str(folder)
    head = {**_node(), "include_dashboard": False, "_system_config": {"health_check_period_ms": _CHECK_MS}}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        grow(made, n_nodes)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        os.environ.pop("RAY_TMPDIR")
        if kept is not None:
            os.environ["RAY_TMPDIR"] = kept
        shutil.rmtree(folder, ignore_errors=True)


def grow(made: Any, n_nodes: int) -> None:
    """Adds nodes until there are so many."""
    while len(made.list_all_nodes()) < n_nodes:
        made.add_node(**_node())
    made.wait_for_nodes()


def _node() -> dict[str, Any]:
    return {"num_cpus": 1, "object_store_memory": STORE_BYTES}
