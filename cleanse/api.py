"""The scan as a function call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cleanse.config import ScanConfig
from cleanse.pipeline import scan as run
from cleanse.probing.recipes import settle
from cleanse.sources import ReadOptions
from cleanse.summary import ScanResult
from cleanse.trainer_view.asking import token_source


def scan(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    format: str = "auto",  # noqa: A002 - named as the command line's option is
    text_column: str | None = None,
    input_format: str = "auto",
    rules: Sequence[str] = ("default",),
    tokenizer: str | None = None,
    chat_template: str | None = None,
    training: Mapping[str, Any] | None = None,
    glitch_tokens: str | None = None,
    probe: str = "auto",
    probe_options: Mapping[str, Any] | None = None,
    corpus: bool = True,
    dedup: str = "note",
    suspects: str = "keep",
    allow: Sequence[str | os.PathLike[str]] = (),
    repair: bool = True,
    emit: Sequence[str] = ("arrow",),
    workers: int = 0,
    max_record_bytes: int = 64 << 20,
) -> ScanResult:
    """Parts a corpus into clean and quarantined records, as ``cleanse scan`` does.

    Called again with the same arguments it goes on where an interrupted run stopped, or gives the result of a
    finished one. Safe to call from notebooks and from scripts without a main guard.

    Args:
        inputs: files, folders, globs or a hub id: one, or several.
        out: the output folder, new or that of an earlier call with the same arguments.
        format: how columns make a training record ("alpaca", "messages", ...); "auto" looks at them.
        text_column: judge this column as plain text instead.
        input_format: how the files are read, where their names do not say it.
        rules: rule packs: names or paths of TOML files.
        tokenizer: path or hub id of the tokenizer whose view of the data is to be checked; "none" for no such
            checks. Without it the embedded model's is used where the probe runs with it.
        chat_template: a template, or the file of one, instead of the tokenizer's own.
        training: the trainer's settings, as ``{"trainer": "trl", "max_length": 2048}``
            (arguments of ``cleanse.trainer_view.TrainerSettings.of``).
        glitch_tokens: file of under-trained tokens, one a line, as text or as id.
        probe: "auto", "none", the name of a probe recipe, or the path of one.
        probe_options: settings of ``cleanse.probing.settings.ProbeSettings`` that differ from the recipe's, such as
            ``{"model": "path/to/model", "budget": 0.01, "scope": "all"}``.
        corpus: look across records for duplicates, floods of one answer and planted triggers.
        dedup: "note" copies, or quarantine all but the first of "exact" or "near" ones.
        allow: allow lists of ``cleanse release``: what people released stays.
        suspects: "keep" them in clean, or "quarantine" them.
        repair: mend text in clean where a rule can.
        emit: "jsonl" and "parquet" write the clean records in that form too.
        workers: worker processes; 0 for one per processor.
        max_record_bytes: longer records are quarantined by reference (source, byte range, sha256).

    Raises:
        CleanseError: the scan cannot go on; the message says what to do (``UsageError``, ``NoRecordsError``).
        SourceError, FormatError, PackError: an input, its columns or a rule pack is not usable.
    """
    settings = settle(probe, probe_options or {})[0]
    several = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    return run(
        ScanConfig(
            inputs=tuple(os.fspath(name) for name in several),
            out=Path(out),
            format=format,
            text_column=text_column,
            packs=tuple(rules),
            tokens=token_source(tokenizer, chat_template, training, glitch_list=glitch_tokens, probe=settings),
            probe=settings,
            corpus=corpus,
            dedup=dedup,
            suspects=suspects,
            allow=tuple(Path(name) for name in allow),
            repair=repair,
            emit=tuple(emit),
            workers=workers,
            read=ReadOptions(max_record_bytes=max_record_bytes, input_format=input_format),
        )
    )
