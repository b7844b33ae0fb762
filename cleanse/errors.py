"""What can go wrong through no fault of the program: each message says what was expected and what to do."""

from __future__ import annotations


class CleanseError(Exception):
    """Work that failed for a reason outside the program. The command line ends with ``exit_code``."""

    exit_code = 1


class UsageError(CleanseError):
    """A command that cannot mean what was meant: an unknown value, or an output folder that is taken."""

    exit_code = 2


class NoRecordsError(CleanseError):
    """The input was read to its end and holds no record at all."""

    exit_code = 3
