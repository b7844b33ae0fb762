"""The one error a reader raises for a user's mistake."""

from __future__ import annotations


class SourceError(Exception):
    """An input that cannot be read at all.

    The message names the input, says what was expected and what to do; it is meant to be shown as it is.
    Damage inside an input is never an error: it becomes strays and events.
    """
