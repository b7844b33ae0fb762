"""How a scan tells what it is doing: to nobody, or as one line on a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cleanse.formats import Format
from cleanse.safe_text import escape
from cleanse.sources import Plan

if TYPE_CHECKING:
    from typing_extensions import Self

_PASSES = ("inspect", "split")
_MOST_FORMATS = 8  # lines: a folder of a thousand files has few formats, but may have one odd one per file


class Progress(Protocol):
    """Told by the pipeline what happens."""

    def planned(self, plan: Plan, formats: Sequence[Format | None], *, resumed: bool) -> None:
        """The inputs are known, and what their columns mean."""
        ...

    def remark(self, words: str) -> None:
        """Something the user should know, once."""
        ...

    def stage(self, name: str) -> None:
        """A stage begins."""
        ...

    def resume_at(self, done: int, total: int) -> None:
        """Of the units of this stage, so many were finished by an earlier process."""
        ...

    def advance(self, n_bytes: int, n_records: int, n_held: int) -> None:
        """So much more has been read, and so many more records will be quarantined."""
        ...


class Silent:
    """Says nothing."""

    def planned(self, plan: Plan, formats: Sequence[Format | None], *, resumed: bool) -> None:
        """Nothing."""

    def remark(self, words: str) -> None:
        """Nothing."""

    def stage(self, name: str) -> None:
        """Nothing."""

    def resume_at(self, done: int, total: int) -> None:
        """Nothing."""

    def advance(self, n_bytes: int, n_records: int, n_held: int) -> None:
        """Nothing."""


class Lines(Silent):
    """The few lines worth keeping in a log: formats, and whether work goes on from an earlier run."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def planned(self, plan: Plan, formats: Sequence[Format | None], *, resumed: bool) -> None:
        """Prints which format each input has, inputs of one format together."""
        alike: dict[str, list[str]] = {}
        for source, fmt in zip(plan.sources, formats, strict=True):
            described = fmt.describe() if fmt else "no record that can be parsed"
            alike.setdefault(described, []).append(source.name)
        for described, names in list(alike.items())[:_MOST_FORMATS]:
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            self._say(f"{names[0]}{more}: {described}")
        if len(alike) > _MOST_FORMATS:
            self._say(f"... and {len(alike) - _MOST_FORMATS:,} more formats")
        if resumed:
            self._say("an earlier run of this command was interrupted: going on where it stopped")

    def remark(self, words: str) -> None:
        """Prints the words."""
        self._say(words)

    def _say(self, line: str) -> None:
        self._console.print(Text(escape(line)), soft_wrap=True)


class TerminalLine(Lines):
    """One line that is drawn over and over: stage, share done, speed, quarantined so far, time left."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._stage = "plan"
        self._total_bytes = 0
        self._finished = 0.0  # passes finished, and the share of this one that an earlier process did
        self._began = time.monotonic()
        self._read = [0, 0]  # bytes and records, both passes
        self._in_stage = 0  # bytes
        self._held = 0
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def planned(self, plan: Plan, formats: Sequence[Format | None], *, resumed: bool) -> None:
        """Prints the formats, and learns how much there is to read."""
        super().planned(plan, formats, resumed=resumed)
        self._total_bytes = sum(source.n_bytes for source in plan.sources)
        self._began = time.monotonic()

    def stage(self, name: str) -> None:
        """Begins the next part of the line."""
        self._stage = name
        self._finished = float(_PASSES.index(name)) if name in _PASSES else self._share() * len(_PASSES)
        self._in_stage = 0

    def resume_at(self, done: int, total: int) -> None:
        """Counts what an earlier process did as done, without its time."""
        self._finished += done / max(1, total)

    def advance(self, n_bytes: int, n_records: int, n_held: int) -> None:
        """Adds to the line."""
        self._read[0] += n_bytes
        self._read[1] += n_records
        self._in_stage += n_bytes
        self._held += n_held

    def _share(self) -> float:
        """Share of the whole work that is done, 0 to 1."""
        here = self._in_stage / self._total_bytes if self._total_bytes else 0.0
        return min(1.0, (self._finished + min(1.0, here)) / len(_PASSES))

    def _render(self) -> Table:
        seconds = max(1e-3, time.monotonic() - self._began)
        share = self._share()
        done_here = self._read[0] / max(1, self._total_bytes) / len(_PASSES)  # by this process
        left = (1 - share) * seconds / done_here if done_here > 0 else None
        row = Table.grid(padding=(0, 2))
        for _ in range(7):
            row.add_column(no_wrap=True)
        row.add_row(
            self._stage,
            ProgressBar(total=1.0, completed=share, width=24),
            f"{share:4.0%}",
            f"{self._read[1] / seconds:,.0f} records/s",
            f"{self._read[0] / seconds / 1e6:,.1f} MB/s",
            f"{self._held:,} quarantined",
            "" if left is None else f"{_clock(left)} left",
        )
        return row


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
