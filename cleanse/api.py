"""The commands as function calls."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanse.config import ScanConfig
from cleanse.errors import UsageError
from cleanse.pipeline import scan as run
from cleanse.probing.recipes import settle
from cleanse.sources import ReadOptions
from cleanse.storage.filesystem import on_disk, output
from cleanse.summary import ScanResult
from cleanse.trainer_view.asking import token_source

if TYPE_CHECKING:
    from cleanse.reviewing.release import Released


def scan(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    format: str = "auto",  # noqa: A002 - named as the command line's option is
    text_column: str | None = None,
    input_format: str = "auto",
    rules: str | Sequence[str] = ("default",),
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
    engine: str = "local",
    address: str | None = None,
    resources: Mapping[str, float] | None = None,
    workers: int = 0,
    max_record_bytes: int = 64 << 20,
) -> ScanResult:
    """Parts a corpus into clean and quarantined records, as ``cleanse scan`` does.

    Called again with the same arguments it goes on where an interrupted run stopped, or gives the result of a
    finished one. Safe to call from notebooks and from scripts without a main guard.

    Args:
        inputs: files, folders, globs (as paths, or as URLs such as ``s3://bucket/data/*.jsonl``) or a hub id: one, or
            several.
        out: the output folder or URL (``s3://bucket/folder``), new or that of an earlier call with the same
            arguments.
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
        engine: what runs the work: "local" for processes of this machine, "ray" for a cluster. The result is the same.
        address: of the cluster ("host:port"; "auto" for the one this machine is part of); without it ``RAY_ADDRESS``,
            else a Ray of its own. A Ray that this process is connected to already is used, and left running.
        resources: what a worker that runs the model asks of the cluster, as ``{"GPU": 0.5}``; without it one GPU or NPU
            where there is one, else a processor.
        workers: worker processes; 0 for one per processor, or as many as the cluster holds.
        max_record_bytes: longer records are quarantined by reference (source, byte range, sha256).

    Raises:
        CleanseError: the scan cannot go on; the message says what to do (``UsageError``, ``NoRecordsError``).
        SourceError, FormatError, PackError: an input, its columns or a rule pack is not usable.
    """
    settings = settle(probe, probe_options or {})[0]
    folder, url = output(os.fspath(out))
    several = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    return run(
        ScanConfig(
            inputs=tuple(os.fspath(name) for name in several),
            out=folder,
            url=url,
            format=format,
            text_column=text_column,
            packs=(rules,) if isinstance(rules, str) else tuple(rules),
            tokens=token_source(tokenizer, chat_template, training, glitch_list=glitch_tokens, probe=settings),
            probe=settings,
            corpus=corpus,
            dedup=dedup,
            suspects=suspects,
            allow=tuple(Path(name) for name in allow),
            repair=repair,
            emit=tuple(emit),
            engine=engine,
            address=address,
            resources=tuple((resources or {}).items()),
            workers=workers,
            read=ReadOptions(max_record_bytes=max_record_bytes, input_format=input_format),
        )
    )


def release(
    out: str | os.PathLike[str],
    *,
    ids: Sequence[str] = (),
    rules: Sequence[str] = (),
    all_below: float | None = None,
    decisions: str | os.PathLike[str] | None = None,
    note: str = "",
    allow: str | os.PathLike[str] | None = None,
) -> Released:
    """Moves reviewed records of a finished scan from quarantine back to clean, as ``cleanse release`` does.

    They take their places in the input's order, exactly as they were read; counts, findings and the report follow. A
    process that is killed has either changed nothing, or the next command on ``out`` carries the change to its end.

    Args:
        out: the output folder of a finished scan.
        ids: the column ``cleanse_id`` of the records.
        rules: release the records that these rules, and no others, hold.
        all_below: release the records that only the probe convicted, with a confidence (1 - p-value) below this.
        decisions: a file of decisions, as the report exports it and ``cleanse review`` writes it.
        note: why, kept beside the decision where the file of decisions has no note of its own.
        allow: the list that remembers contents and reasons for later scans; ``OUT/allow.json`` by default.

    Raises:
        UsageError: nothing is named, an id is unknown, or a record has no form; nothing was changed.
        CleanseError: there is no finished scan, or another command is at work in ``out``.
    """
    from cleanse.report.decisions import load  # noqa: PLC0415 - only where records are reviewed
    from cleanse.reviewing.release import release as run_release  # noqa: PLC0415
    from cleanse.reviewing.selection import Wanted  # noqa: PLC0415

    folder = on_disk(os.fspath(out))
    if decisions is not None and not Path(decisions).is_file():
        raise UsageError(f"there is no file {os.fspath(decisions)}: expected the decisions that the report exports")
    decided = load(Path(decisions)) if decisions is not None else {}
    notes = {id_: decision.note for id_, decision in decided.items() if decision.decision == "release"}
    wanted = Wanted(
        ids=[*dict.fromkeys([*ids, *notes])],
        rules=rules,
        all_below=all_below,
        notes=notes,
        note=note,
        decided=decisions is not None,
    )
    return run_release(folder, wanted, None if allow is None else Path(allow))
