"""The ledger: which rows went into which step, written down before the step runs, on every rank.

One JSON object per line, one file per rank (``ledger-rank-0.jsonl``), append only:

* ``{"t": "run", "rank", "world_size", "time", ...}`` when a run starts or is resumed;
* ``{"t": "rows", "step", "micro", "rows"}`` before a forward pass;
* ``{"t": "step", "step", "loss", "grad_norm", ...}`` after an optimizer step.

Every line is handed to the operating system in one write, so a killed process loses no line that it had written, and
at most the line it was writing. A row of a step that ended in a crash is therefore in the ledger.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from cleanse.replaying.capsule import json_safe
from cleanse.replaying.steps import RowId, StepRows, once

NAME = "ledger-rank-{}.jsonl"


def row_ids(ids: Any) -> list[RowId]:
    """Row ids as plain ints and strings, from a list, an array or a tensor of any framework."""
    tolist = getattr(ids, "tolist", None) or getattr(ids, "asnumpy", None)
    values = tolist() if callable(tolist) else ids
    values = values.tolist() if hasattr(values, "tolist") else values
    flat = [values] if isinstance(values, int | str) else list(values)
    return [v if isinstance(v, str) else int(v) for v in flat]


class LedgerWriter:
    """Appends to one rank's file."""

    def __init__(self, folder: str | Path, rank: int = 0, world_size: int = 1, **about: Any) -> None:
        self.path = Path(folder) / NAME.format(rank)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._end_broken_line()
        self._write({"t": "run", "format": 1, "rank": rank, "world_size": world_size, "time": time.time(), **about})

    def rows(self, step: int, micro: int, rows: Iterable[RowId]) -> None:
        """The rows of a forward pass that is about to run."""
        self._write({"t": "rows", "step": step, "micro": micro, "rows": list(rows)})

    def step(self, step: int, figures: Mapping[str, Any]) -> None:
        """What a step came to. Figures that are not finite are written as text: JSON has no NaN."""
        self._write({"t": "step", "step": step, **{k: v for k, v in figures.items() if v is not None}})

    def close(self) -> None:
        """Close the file; the ledger stays readable without."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, entry: dict[str, Any]) -> None:
        line = orjson.dumps(json_safe(entry)) + b"\n"
        while line:  # a full disk or a signal can cut a write short
            line = line[os.write(self._file, line) :]

    def _end_broken_line(self) -> None:
        """A killed run may have left half a line: end it, so that it spoils no other."""
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")


class Ledger:
    """Reads what ``LedgerWriter`` wrote, line by line: memory does not grow with the run.

    A run that was resumed feeds some steps again: the last time counts.
    """

    def __init__(self, where: str | Path) -> None:
        """Open a ledger.

        Args:
            where: one rank's file, or the folder that holds those of all ranks.

        Raises:
            ValueError: there is none.
        """
        where = Path(where)
        self.files = sorted(where.glob(NAME.format("*"))) if where.is_dir() else [where]
        self.files.sort(key=lambda f: (len(f.name), f.name))
        if not self.files or not all(f.is_file() for f in self.files):
            raise ValueError(f"no ledger at {where}: expected {NAME.format('N')} or a folder with such files")

    def at(self, step: int) -> StepRows:
        """The rows of a step, as ``cleanse.order(...).at`` gives them.

        Raises:
            ValueError: the ledger does not know the step; the message says which it knows.
        """
        ranks, before = [], []
        steps: set[int] = set()
        for file in self.files:
            fed: dict[int, dict[int, list[RowId]]] = {}
            for entry in _fed(file):
                number = entry["step"]
                steps.update((number,))
                if len(steps) > 2:  # noqa: PLR2004  # only the first and last are told
                    steps = {min(steps), max(steps)}
                if number not in {step, step - 1}:
                    continue
                if entry["micro"] == 0:
                    fed[number] = {}  # fed again after a resume
                fed.setdefault(number, {})[entry["micro"]] = [
                    r if isinstance(r, str) else int(r) for r in entry["rows"]
                ]
            ranks.append(tuple(tuple(rows) for _, rows in sorted(fed.get(step, {}).items())))
            before += [row for _, rows in sorted(fed.get(step - 1, {}).items()) for row in rows]
        if not any(ranks):
            known = f"steps {min(steps)} to {max(steps)}" if steps else "no step"
            raise ValueError(f"the ledger at {self.files[0].parent} knows {known}, not step {step}")
        return StepRows(
            step=step,
            epoch=None,
            update=None,
            rows=once(row for rank in ranks for micro in rank for row in micro),
            rows_before=once(before),
            micro_batches=tuple(ranks),
        )

    def figures(self) -> list[dict[str, float]]:
        """What the first rank recorded per step (``step``, ``loss``, ...), for ``RunLog.from_history``."""
        found: dict[int, dict[str, float]] = {}
        for entry in _lines(self.files[0]):
            if entry.get("t") == "step" and isinstance(entry.get("step"), int):
                found[entry["step"]] = {k: number for k, v in entry.items() if (number := _number(v)) is not None}
        return [found[k] for k in sorted(found)]

    def settings(self) -> dict[str, Any]:
        """What the last run that wrote here said about itself (trainer, seeds, batch sizes)."""
        found: dict[str, Any] = {}
        for entry in _lines(self.files[0]):
            if entry.get("t") == "run" and isinstance(entry.get("settings"), dict):
                found = entry["settings"]
        return found

    def last_spike(self) -> int:
        """The last step that a spike rule spoke of, on any rank; 0 for none."""
        return max(
            (
                entry["step"]
                for file in self.files
                for entry in _lines(file)
                if entry.get("t") == "step" and entry.get("spike") and isinstance(entry.get("step"), int)
            ),
            default=0,
        )

    def last_step(self) -> int:
        """The last step that any rank began: where a killed run stood. 0 for an empty ledger."""
        return max((last for file in self.files if (last := _last(file)) is not None), default=0)


def _last(file: Path) -> int | None:
    last = None
    for entry in _fed(file):
        last = entry["step"]
    return last


def _fed(file: Path) -> Iterator[dict[str, Any]]:
    for entry in _lines(file):
        if (
            entry.get("t") == "rows"
            and isinstance(entry.get("step"), int)
            and isinstance(entry.get("micro"), int)
            and isinstance(entry.get("rows"), list)
        ):
            yield entry


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """The entries of a file. Half a line, left by a kill, is passed over."""
    with file.open("rb") as lines:
        for line in lines:
            try:
                entry = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(entry, dict):
                yield entry


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    return float(value) if isinstance(value, str) and value in {"nan", "inf", "-inf"} else None
