"""``cleanse scan``: options in, progress on stderr, the result on stdout."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from cleanse.commands.show import print_result
from cleanse.config import ScanConfig
from cleanse.errors import UsageError
from cleanse.pipeline import scan
from cleanse.probing.recipes import settle
from cleanse.progress import Lines, Progress, Silent, TerminalLine
from cleanse.records import Action
from cleanse.rulepacks import load_packs
from cleanse.safe_text import escape
from cleanse.sources import ReadOptions
from cleanse.storage.filesystem import output
from cleanse.summary import ScanResult
from cleanse.trainer_view.asking import token_source

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}


def run_scan(
    src: tuple[str, ...],
    *,
    out: str,
    format_: str,
    text_column: str | None,
    input_format: str,
    packs: tuple[str, ...],
    probe: str,
    probe_options: dict[str, Any],
    tokenizer: str | None,
    chat_template: str | None,
    training: dict[str, Any],
    glitch_tokens: str | None,
    corpus: bool,
    dedup: str,
    suspects: str,
    allow: tuple[Path, ...],
    repair: bool,
    engine: str,
    address: str | None,
    resources: str | None,
    workers: int,
    emit: str,
    max_record_bytes: str,
    shard_bytes: str,
    fail_on: str,
    as_json: bool,
    quiet: bool,
) -> bool:
    """Scans and prints; returns whether ``fail_on`` was met."""
    settings, remark = settle(probe, probe_options)
    folder, url = output(out)
    config = ScanConfig(
        inputs=src,
        out=folder,
        url=url,
        format=format_,
        text_column=text_column,
        packs=packs or ("default",),
        tokens=token_source(tokenizer, chat_template, training, glitch_list=glitch_tokens, probe=settings),
        probe=settings,
        corpus=corpus,
        dedup=dedup,
        suspects=suspects,
        allow=allow,
        repair=repair,
        emit=tuple(kind.strip() for kind in emit.split(",") if kind.strip()),
        engine=engine,
        workers=workers,
        address=address,
        resources=parse_resources(resources),
        read=ReadOptions(
            max_record_bytes=parse_size(max_record_bytes),
            shard_bytes=parse_size(shard_bytes),
            input_format=input_format,
        ),
    )
    errors = Console(stderr=True, highlight=False)
    if remark and not quiet:
        errors.print(Text(remark), soft_wrap=True)
    with ExitStack() as stack:
        result = scan(config, _progress(errors, stack, quiet=quiet))
    if result.already_done and not quiet:
        done = f"this command has already run to its end: its result is in {result.place}"
        errors.print(Text(escape(done)), soft_wrap=True)
    if as_json or not quiet:
        print_result(result, as_json=as_json)
    return _met(fail_on, result, packs or ("default",))


def _progress(console: Console, stack: ExitStack, *, quiet: bool) -> Progress:
    if quiet:
        return Silent()
    if sys.stderr.isatty():
        return stack.enter_context(TerminalLine(console))
    return Lines(console)


def _met(fail_on: str, result: ScanResult, packs: tuple[str, ...]) -> bool:
    """Whether any record met the action asked about, or one above it."""
    if fail_on == "never":
        return False
    if fail_on == "quarantine":
        return result.quarantined > 0
    if fail_on == "suspect":
        return result.suspected > 0
    if fail_on == "note":
        return result.n_findings > 0
    repairs = {rule.id for rule in load_packs(packs).rules if rule.action.severity >= Action.REPAIR.severity}
    return result.suspected > 0 or any(rule in repairs for rule in result.rules)


def parse_resources(text: str | None) -> tuple[tuple[str, float], ...]:
    """Names and amounts of "GPU=0.5,CPU=2". Raises UsageError where it is none of these."""
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    found = [re.fullmatch(r"([A-Za-z_][\w.:-]*)\s*=\s*(\d+(?:\.\d+)?)", part) for part in parts]
    if not all(found):
        raise UsageError(f"{text!r} names no resources: expected something like GPU=1 or GPU=0.5,CPU=2")
    return tuple((match[1], float(match[2])) for match in found if match)


def parse_size(text: str) -> int:
    """Bytes of "64MB" (10^6), "64MiB" (2^20), "1G", "500000". Raises UsageError where it is none of these."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?)?B?", text.strip().upper())
    if found is None or float(found[1]) == 0:
        raise UsageError(f"{text!r} is not a size: expected something like 64MB, 64MiB or 1GB")
    return int(float(found[1]) * _UNITS[found[2] or ""])
