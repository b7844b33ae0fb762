"""The other end of the local engine: what runs in a worker process."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from multiprocessing.connection import Connection

from cleanse.engines.failure import Failure

_WATCH_SECONDS = 0.5
_REPORT_SECONDS = 0.1


def main(descriptor: int, parent: int) -> None:
    """Runs jobs from the connection until it closes or the parent process is gone."""
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - its one parameter
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    connection = Connection(descriptor)
    # A connection that breaks means the parent is gone or stopping: nobody is left to tell.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            function, argument = connection.recv()
            report = _Reporter(connection)
            try:
                result = function(argument, report)
                report.flush()
                answer = ("done", result)
            except (BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the main process reports it
                answer = ("failed", Failure.of(error))
            connection.send(answer)


def _die_with(parent: int) -> None:
    """Ends this process when its parent has died, even by SIGKILL, so that nothing writes behind a new run's back."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


class _Reporter:
    """Passes progress on, a few times a second at most."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pending = [0, 0, 0]
        self._sent = time.monotonic()

    def __call__(self, n_bytes: int, n_records: int, n_held: int) -> None:
        for i, more in enumerate((n_bytes, n_records, n_held)):
            self._pending[i] += more
        if time.monotonic() - self._sent > _REPORT_SECONDS:
            self.flush()

    def flush(self) -> None:
        self._connection.send(("progress", tuple(self._pending)))
        self._pending = [0, 0, 0]
        self._sent = time.monotonic()
