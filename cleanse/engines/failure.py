"""A failure in a form that travels between processes and can be told to a user."""

from __future__ import annotations

import errno
import traceback
from dataclasses import dataclass

from cleanse.errors import CleanseError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class InternalError(CleanseError):
    """A defect of the program itself; ``trace`` says where."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


@dataclass(frozen=True)
class Failure:
    """What an exception said, without the exception."""

    message: str
    trace: str | None  # None where the message alone tells the user what to do

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Describes ``error`` for a user; anything unforeseen keeps its traceback."""
        if isinstance(error, InternalError):
            return cls(str(error), error.trace)
        if isinstance(error, OSError) and error.errno is not None:
            return cls(_os_message(error), None)
        if isinstance(error, MemoryError):
            return cls("out of memory: use fewer --workers or a smaller --max-record-bytes", None)
        if isinstance(error, CleanseError) or _speaks_to_users(error):
            return cls(str(error), None)
        return cls(
            f"internal error ({type(error).__name__}: {error}); this is a defect of cleanse, please report it",
            "".join(traceback.format_exception(error)),
        )

    def as_error(self, label: str) -> CleanseError:
        """The exception to raise in the main process, naming the piece of work."""
        message = f"{label}: {self.message}" if label else self.message
        return InternalError(message, self.trace) if self.trace else CleanseError(message)


def _speaks_to_users(error: Exception) -> bool:
    """Whether the message is written for users: errors of sources, formats and rule packs say so by their name."""
    return type(error).__module__.startswith("cleanse.") and not isinstance(error, AssertionError)


def _os_message(error: OSError) -> str:
    where = f" {error.filename}" if error.filename else ""
    if error.errno in _NO_ROOM:
        return (
            f"no room left to write{where} ({error.strerror or error}): "
            "free some space and run the same command again, it continues where it stopped"
        )
    return f"{error.strerror or error}{where and ':'}{where}"
