"""``cleanse release``: who goes free, and where that is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import orjson

from cleanse.api import release
from cleanse.errors import UsageError
from cleanse.safe_text import escape


def run_release(
    out: Path,
    *,
    ids: Sequence[str],
    rules: Sequence[str],
    all_below: float | None,
    decisions: Path | None,
    note: str,
    allow: Path | None,
    as_json: bool,
) -> None:
    """Releases and prints what moved."""
    named = [id_ for given in ids for id_ in _listed(given)]
    done = release(out, ids=named, rules=rules, all_below=all_below, decisions=decisions, note=note, allow=allow)
    if as_json:
        counts = done.result.summary["counts"]
        answer = {"released": done.ids, "formless": done.formless, "allow": str(done.allow), "counts": counts}
        click.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2))
        return
    click.echo(
        f"{len(done.ids):,} records released; {done.result.clean:,} are clean now and {done.result.quarantined:,} "
        "quarantined"
    )
    if done.formless:
        click.echo(f"{done.formless:,} records could not be parsed and stay: mend them in their source")
    if done.ids:
        click.echo(f"later scans keep them with --allow {escape(str(done.allow))}")


def _listed(given: str) -> list[str]:
    """One id, or those of a file (``@FILE``), one per line."""
    if not given.startswith("@"):
        return [given]
    path = Path(given[1:])
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the ids in {path} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip()]
