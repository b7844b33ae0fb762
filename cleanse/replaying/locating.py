"""Which rows were in the step: from a trainer's settings, a ledger, a batch id, or a file of ids."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanse.errors import UsageError
from cleanse.replaying.order import order
from cleanse.replaying.runfiles import RunFiles, read_settings
from cleanse.replaying.steps import OrderUnknown, RowId, StepRows

if TYPE_CHECKING:
    from cleanse.guard import Ledger

_STEP_ID = re.compile(r"step-(\d+)(?:-rank-\d+)?")
_STRETCH_ID = re.compile(r"(?P<source>.+):(?P<first>\d+)-(?P<last>\d+)", re.DOTALL)
_MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class Located:
    """The rows of a step, and what is known about the run around it.

    ``micro_batches[rank][k]`` as in ``StepRows``; one micro-batch of all rows where the division is not known.
    """

    step: int | None
    rows: tuple[RowId, ...]
    rows_before: tuple[RowId, ...] = ()
    micro_batches: tuple[tuple[tuple[RowId, ...], ...], ...] = ()
    known_from: str = ""  # "order", "ledger", "batch id", "file"
    history: tuple[dict[str, float], ...] = ()  # what the run logged: step, loss, grad_norm, learning_rate
    settings: dict[str, Any] = field(default_factory=dict)  # of the run, for the capsule
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """``step``, ``rows``, ``rows_before``, ``micro_batches``, ``known_from``, ``notes``."""
        return {
            "step": self.step,
            "rows": list(self.rows),
            "rows_before": list(self.rows_before),
            "micro_batches": [[list(micro) for micro in rank] for rank in self.micro_batches],
            "known_from": self.known_from,
            "notes": list(self.notes),
        }


def locate(
    *,
    step: int | None = None,
    batch_id: str | None = None,
    ids: str | Path | Sequence[RowId] | None = None,
    ledger: str | Path | None = None,
    run: Sequence[str | Path] = (),
    trainer: str | None = None,
    rows: int | None = None,
    settings: Mapping[str, Any] | None = None,
    row_ids: Any = None,
    index_files: str | Path | None = None,
) -> Located:
    """Find the rows of a step.

    Args:
        step: the global step, the first being 1. With a ledger it may be left out: the last step that was a spike, or
            the last that was begun.
        batch_id: ``step-N``; or ``<source>:<first>-<last>``, as ``probe.parquet`` names its batches.
        ids: row ids, or a file of them: JSON (a list, ``capsule.json``, ``skip.json``) or one id per line.
        ledger: a ledger of ``cleanse.Guard``: one rank's file, or their folder.
        run: files or folders that the run left (see ``read_settings``).
        trainer: as in ``cleanse.order``, and ``rows``, ``row_ids``, ``index_files`` likewise.
        rows: length of the dataset.
        settings: other settings of ``cleanse.order``.
        row_ids: see ``cleanse.order``.
        index_files: see ``cleanse.order``.

    Raises:
        UsageError: what is given does not say which rows; the message says what is missing.
        OrderUnknown: the order cannot be known from the settings.
    """
    files = read_settings(list(run)) if run else RunFiles()
    history = tuple(files.log)
    if batch_id is not None:
        found = _STEP_ID.fullmatch(batch_id)
        stretch = _STRETCH_ID.fullmatch(batch_id)
        if found is None and stretch is None:
            raise UsageError(f"{batch_id!r} is no batch id: expected step-N, or SOURCE:FIRST-LAST as in probe.parquet")
        if found is None and stretch is not None:
            return _stretch(stretch["source"], int(stretch["first"]), int(stretch["last"]), history)
        assert found is not None
        if step is not None and step != int(found[1]):
            raise UsageError(f"--step {step} and batch id {batch_id!r} name different steps: give one of them")
        step = int(found[1])
    if ids is not None:
        return _listed(ids, step, history)
    if ledger is not None:
        return _recorded(ledger, step, history)
    if step is None:
        raise UsageError("say which step: --step N, --batch-id ID, --ids FILE or --ledger PATH")
    given = {**dict(settings or {}), "row_ids": row_ids, "index_files": index_files}
    try:
        made = order(trainer, rows, config=list(run) or None, **{k: v for k, v in given.items() if v is not None})
        return _ordered(made.at(step), history, made.notes, vars(made.settings))
    except TypeError as error:
        raise UsageError(str(error)) from error


def _ordered(
    found: StepRows, history: tuple[dict[str, float], ...], notes: Sequence[str], settings: Mapping[str, Any]
) -> Located:
    known = {k: v for k, v in settings.items() if v is not None}
    micros = found.micro_batches or ((found.rows,),)
    return Located(found.step, found.rows, found.rows_before, micros, "order", history, known, tuple(notes))


def _recorded(path: str | Path, step: int | None, history: tuple[dict[str, float], ...]) -> Located:
    from cleanse.guard.ledger import Ledger  # noqa: PLC0415 - the guard imports this package

    ledger = Ledger(path)
    if step is None:
        step = _culminates(ledger)
    try:
        found = ledger.at(step)
    except ValueError as error:
        raise UsageError(str(error)) from error
    logged = tuple(ledger.figures()) or history
    return Located(step, found.rows, found.rows_before, found.micro_batches, "ledger", logged, ledger.settings())


def _culminates(ledger: Ledger) -> int:
    """The last step that the guard called a spike, else the last that was begun."""
    step = ledger.last_spike() or ledger.last_step()
    if not step:
        raise UsageError(f"the ledger {ledger.files[0]} knows no step: nothing was trained under it")
    return step


def _stretch(source: str, first: int, last: int, history: tuple[dict[str, float], ...]) -> Located:
    """A batch of the scan: consecutive rows of one source, and as many before them."""
    if last < first:
        raise UsageError(f"the batch ends at row {last}, before it begins at {first}")
    here = tuple(f"{source}:{row}" for row in range(first, last + 1))
    before = tuple(f"{source}:{row}" for row in range(max(0, 2 * first - last - 1), first))
    return Located(None, here, before, ((here,),), "batch id", history)


def _listed(ids: str | Path | Sequence[RowId], step: int | None, history: tuple[dict[str, float], ...]) -> Located:
    if not isinstance(ids, str | Path):
        rows = tuple(ids)
        return Located(step, rows, (), ((rows,),), "ids", history)
    path = Path(ids) / "capsule.json" if Path(ids).is_dir() else Path(ids)
    content = _ids_file(path)
    if isinstance(content, Mapping):
        rows = _checked(content.get("rows", content.get("skip")), path)
        micros = content.get("micro_batches") or [[list(rows)]]
        return Located(
            step if step is not None else content.get("step"),
            rows,
            _checked(content.get("rows_before") or [], path, empty=True),
            tuple(tuple(_checked(micro, path) for micro in rank) for rank in micros),
            "file",
            history or _logged(content.get("history")),
            dict(content.get("settings") or {}),
        )
    rows = _checked(content, path)
    return Located(step, rows, (), ((rows,),), "file", history)


def _logged(entries: Any) -> tuple[dict[str, float], ...]:
    """A history as JSON has it: numbers that are not finite are texts there."""
    told = entries if isinstance(entries, list) else []
    return tuple({str(k): float(v) for k, v in e.items() if v is not None} for e in told if isinstance(e, Mapping))


def _ids_file(path: Path) -> Any:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path} has more than {_MAX_BYTES >> 20} MiB: no list of the rows of one step")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: expected JSON, or one row id per line") from error
    if text.lstrip()[:1] in {"[", "{"}:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is not valid JSON: {error}") from error
    return [int(line) if line.isdecimal() else line for line in (x.strip() for x in text.splitlines()) if line]


def _checked(rows: Any, path: Path, *, empty: bool = False) -> tuple[RowId, ...]:
    fine = isinstance(rows, list) and all(isinstance(r, int | str) and not isinstance(r, bool) for r in rows)
    if not fine or not (rows or empty):
        raise UsageError(f'{path} holds no row ids: expected a list of numbers or texts, or {{"rows": [...]}}')
    return tuple(rows)


__all__ = ["Located", "OrderUnknown", "locate"]
