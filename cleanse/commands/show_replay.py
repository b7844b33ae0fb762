"""The result of a replay, for people. Everything that comes from data is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cleanse.replaying.content import DataRow
from cleanse.replaying.locating import Located
from cleanse.replaying.result import ReplayResult
from cleanse.replaying.steps import RowId
from cleanse.safe_text import escape

_MOST_ROWS = 10
_MOST_REASONS = 3
_STYLES = {
    "data": "bold red",
    "masked": "bold yellow",
    "precision": "bold yellow",
    "optimisation": "bold cyan",
    "not_reproduced": "bold",
}


def print_rows(located: Located, content: Mapping[RowId, DataRow]) -> None:
    """The rows of a step, and what the rules say of them."""
    console = Console(highlight=False, soft_wrap=True)
    name = f"Step {located.step}" if located.step is not None else "The batch"
    console.print(Text(f"{name} has {len(located.rows):,} rows (known from: {located.known_from})", style="bold"))
    for rank, micros in enumerate(located.micro_batches):
        for k, micro in enumerate(micros):
            where = f"rank {rank}, forward pass {k}: " if len(located.micro_batches) * len(micros) > 1 else ""
            console.print(Text(f"  {where}{_listed(micro)}"))
    if located.rows_before:
        console.print(Text(f"The step before: {_listed(located.rows_before)}"))
    for row, data in content.items():
        if data.reasons:
            console.print(Text(f"row {_id(row)}: {_reasons(data)}"))
    _notes(console, located.notes)


def print_replay(result: ReplayResult, out: Path | None) -> None:
    """The diagnosis first, then the figures it stands on."""
    console = Console(highlight=False, soft_wrap=True)
    title = Text(f"{result.kind.replace('_', ' ').upper()}  ", style=_STYLES[result.kind])
    console.print(title + Text(escape(result.evidence), style="bold"))
    console.print(Text(escape(result.diagnosis.remedy)))
    console.print()
    console.print(_table(result))
    if len(result.ranking) > _MOST_ROWS:
        console.print(f"... and {len(result.ranking) - _MOST_ROWS:,} more rows")
    for row in result.culprits or [r.row for r in result.ranking[:1]]:
        _about(console, result, row)
    console.print()
    console.print(Text(_window(result)))
    console.print(Text(f"To go on: {escape(result.recipe)}"))
    _notes(console, result.notes)
    if out is not None:
        console.print(Text(f"{'the report':22} {escape(str(out / 'report.html'))}"))
        console.print(Text(f"{'capsule to hand on':22} {escape(str(out))}"))
        if result.skip_list is not None:
            console.print(Text(f"{'rows to skip':22} {escape(str(out / 'skip.json'))}"))


def _table(result: ReplayResult) -> Table:
    table = Table("row", box=None, padding=(0, 2, 0, 0), header_style="bold")
    half = result.measured.step.precision == "fp16"
    names = ("loss", "of loss", "grad norm", "of gradient", "tokens", *(("safe scale",) if half else ()))
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("rules")
    figures = {r.row: r for r in result.measured.step.rows}
    for ranked in result.ranking[:_MOST_ROWS]:
        scale = figures[ranked.row].safe_scale
        data = result.rows.get(ranked.row)
        cells = [
            f"{ranked.loss:.3f}",
            f"{ranked.loss_share:.0%}" if ranked.loss_share == ranked.loss_share else "-",
            "-" if ranked.grad_norm is None else f"{ranked.grad_norm:.4g}",
            "-" if ranked.grad_share is None else f"{ranked.grad_share:.0%}",
            f"{ranked.n_supervised:,}",
            *(("-" if scale is None else f"{scale:,.6g}",) if half else ()),
            "" if data is None else ", ".join(escape(r.rule) for r in data.reasons[:_MOST_REASONS]),
        ]
        style = "red" if ranked.row in result.culprits else ""
        table.add_row(Text(_id(ranked.row)), *map(Text, cells), style=style)
    return table


def _about(console: Console, result: ReplayResult, row: RowId) -> None:
    """One row: where it stands, what rules say, its worst token in its text."""
    data, worst = result.rows.get(row), result.worst_tokens.get(row)
    console.print()
    where = f" ({data.source}, record {data.number})" if data is not None else ""
    console.print(Text(f"row {_id(row)}{escape(where)}", style="bold"))
    if data is not None and data.reasons:
        console.print(Text(f"  rules: {_reasons(data)}"))
    if worst is not None:
        line = Text(f"  worst token, {worst.loss:.2f} nats: {escape(worst.before)}")
        line.append(escape(worst.text) or " ", style="reverse")
        console.print(line.append(escape(worst.after)))


def _window(result: ReplayResult) -> str:
    """The step as a whole, replayed and logged."""
    step, before, log = result.measured.step, result.measured.before, result.log
    parts = [f"The step replayed: loss {step.loss:.4f}, gradient norm {_number(step.grad_norm)}"]
    if result.measured.in_precision is not None:
        loss, norm = result.measured.in_precision
        parts.append(f"in {step.precision}: loss {loss:.4f}, gradient norm {_number(norm)}")
    if log.loss is not None or log.grad_norm is not None:
        parts.append(f"logged: loss {_number(log.loss)}, gradient norm {_number(log.grad_norm)}")
    if before is not None:
        parts.append(f"the step before it: loss {before.loss:.4f}, gradient norm {_number(before.grad_norm)}")
    return "; ".join(parts) + "."


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _reasons(data: DataRow) -> str:
    shown = [f"{r.rule} ({r.action}): {r.message}" for r in data.reasons[:_MOST_REASONS]]
    more = len(data.reasons) - len(shown)
    return escape("; ".join(shown) + (f"; and {more} more" if more > 0 else ""))


def _listed(rows: tuple[RowId, ...]) -> str:
    return " ".join(_id(row) for row in rows)


def _id(row: RowId) -> str:
    return escape(str(row))


def _notes(console: Console, notes: tuple[str, ...]) -> None:
    for note in notes:
        console.print(Text(f"note: {escape(note)}"), style="dim")
