"""The connection of this process to a cluster: made where there is none, and quietly."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from cleanse.config import usable_processors
from cleanse.engines.local import ONE_THREAD
from cleanse.errors import CleanseError, UsageError

_STORE_BYTES = 256 << 20  # of a Ray started here: jobs and results are small
_KNOCK_SECONDS = 10.0


@dataclass(frozen=True)
class Connection:
    """How this process came to be connected."""

    ours: bool  # made here, and here to be given up
    runtime_env: dict[str, Any] | None  # to give with every task; None where the connection has it


def connect(address: str | None, n_tasks: int) -> Connection:
    """Uses the connection that is there, else connects, else starts a Ray of this machine alone.

    Args:
        address: "host:port", "auto" for the cluster that this machine is a part of; None: ``RAY_ADDRESS``, else a Ray
            of our own.
        n_tasks: processors of a Ray of our own, 0 for all.

    Raises:
        UsageError: there is a connection to another cluster, or the address is for programs outside.
        CleanseError: no cluster can be used at the address.
    """
    one_thread = {"env_vars": dict(ONE_THREAD)}
    if ray.is_initialized():
        _refuse_another(address)
        return Connection(ours=False, runtime_env=one_thread)
    _start(address or os.environ.get("RAY_ADDRESS") or "local", n_tasks, one_thread)
    return Connection(ours=True, runtime_env=None)


def _refuse_another(address: str | None) -> None:
    connected = ray.get_runtime_context().gcs_address
    if address not in {None, "auto", connected}:
        raise UsageError(
            f"this process is connected to the Ray at {connected}, and {address} was asked for: "
            "call ray.shutdown() before, or leave the address out"
        )


def _start(address: str, n_tasks: int, runtime_env: Mapping[str, Any]) -> None:
    if address.startswith("ray://"):
        raise UsageError(
            f"{address}: run the command on a node of the cluster, and give the address of its head (host:6379) "
            "or auto; ray:// is for programs outside"
        )
    options: dict[str, Any] = {}
    if address == "local":
        processors = n_tasks or usable_processors()
        options = {"num_cpus": processors, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
    try:
        _knock(address)
        with _nothing_on_stderr():
            ray.init(
                address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=dict(runtime_env), **options
            )
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        first = str(error).strip().partition("\n")[0].rstrip(".")
        raise CleanseError(
            f"no Ray cluster can be used at {address}: {first}. Expected host:port of a running head (ray start "
            "--head), auto on one of its nodes, or no address for a Ray of this machine alone"
        ) from error


def _knock(address: str) -> None:
    """Raises OSError where nobody listens at host:port. Ray itself would go on trying for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_SECONDS).close()


@contextmanager
def _nothing_on_stderr() -> Iterator[None]:
    """For the start of Ray, whose C++ half announces there that it will be quiet. Python's errors are exceptions."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
