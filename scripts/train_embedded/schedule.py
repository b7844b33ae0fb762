"""When to warm up, hold and decay the learning rate, with an end given by the clock.

Training machines are shared and slow down without warning, so the end is a time, not a number of steps: the rate holds
until the decay has to start (or is asked for) and then falls linearly to zero at the deadline.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

WARMUP_STEPS = 100


@dataclass(frozen=True, slots=True)
class Schedule:
    """`deadline` and `decay_seconds` in seconds of the same clock as `now` below."""

    deadline: float
    decay_seconds: float

    def factor(self, step: int, now: float) -> float:
        """What the peak learning rates are multiplied by; 0 means: stop."""
        warm = min(1.0, (step + 1) / WARMUP_STEPS)
        left = (self.deadline - now) / self.decay_seconds
        return max(0.0, min(warm, left))

    def decaying(self, now: float) -> bool:
        """Whether the final decay has begun."""
        return now >= self.deadline - self.decay_seconds


def deadline_seconds(until: str | None, minutes: float | None, now: float) -> float:
    """The end of training in epoch seconds: the next HH:MM in UTC, or so many minutes from now.

    Raises ValueError where neither or both are given, or `until` is no time of day.
    """
    if (until is None) == (minutes is None):
        raise ValueError("give either --until HH:MM (UTC) or --minutes N")
    if minutes is not None:
        return now + 60 * minutes
    clock = dt.time.fromisoformat(str(until))
    start = dt.datetime.fromtimestamp(now, dt.timezone.utc)
    end = start.replace(hour=clock.hour, minute=clock.minute, second=0, microsecond=0)
    if end <= start:
        end += dt.timedelta(days=1)
    return end.timestamp()
