"""``cleanse.replay``: from a step to the record that did it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cleanse.errors import CleanseError, UsageError
from cleanse.replaying.asking import first_id_of, mean_per_batch, opened_probe, precision_of, tokenizer_of, view_of
from cleanse.replaying.content import DataRow, contents
from cleanse.replaying.data import count_rows, find_rows
from cleanse.replaying.diagnosis import diagnose
from cleanse.replaying.figures import RunLog
from cleanse.replaying.locating import Located, locate
from cleanse.replaying.measuring import Replayer
from cleanse.replaying.remarks import about_bf16, about_rules, finite_in_bf16, remarks, worst_tokens_of
from cleanse.replaying.result import ReplayResult, with_remark
from cleanse.replaying.runfiles import RunFiles, read_settings
from cleanse.replaying.steps import RowId
from cleanse.replaying.tokens import Encoder
from cleanse.rulepacks import load_packs
from cleanse.sources import ReadOptions

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def rows_of_step(
    data: Paths = (), *, rules: Sequence[str] = ("default",), **where: Any
) -> tuple[Located, dict[RowId, DataRow]]:
    """Which rows were in a step, and what the rules say of them where the data is at hand. No model is needed.

    Args:
        data: the training data, as for a scan; may be left out.
        rules: rule packs.
        **where: arguments of ``cleanse.replaying.locating.locate``.

    Raises:
        UsageError: what is given does not say which rows.
        OrderUnknown: the order cannot be known; the message says why.
    """
    inputs = _several(data)
    if inputs and where.get("rows") is None and where.get("trainer") is not None:
        where["rows"] = count_rows(inputs, ReadOptions())
    located = locate(**where)
    if not inputs:
        return located, {}
    found = find_rows(inputs, located.rows, positions=located.known_from == "order", read=ReadOptions())
    return located, contents(found, load_packs(tuple(rules)))


def replay(
    data: Paths,
    *,
    model: str = "embedded",
    step: int | None = None,
    batch_id: str | None = None,
    ids: str | Path | Sequence[RowId] | None = None,
    ledger: str | Path | None = None,
    run: Paths = (),
    trainer: str | None = None,
    rows: int | None = None,
    settings: Mapping[str, Any] | None = None,
    row_ids: Any = None,
    index_files: str | Path | None = None,
    adapter: str | None = None,
    tokenizer: str | None = None,
    chat_template: str | None = None,
    max_length: int | None = None,
    truncation: str | None = None,
    loss: str | None = None,
    dtype: str | None = None,
    loss_scale: float | str | None = None,
    normalise: str = "auto",
    backend: str = "torch",
    device: str = "auto",
    format: str = "auto",  # noqa: A002 - named as the command line's option is
    text_column: str | None = None,
    rules: Sequence[str] = ("default",),
    out: str | os.PathLike[str] | None = None,
) -> ReplayResult:
    """Replays a training step and says which record did it, or that none did.

    Args:
        data: the training data, as for a scan; or a capsule's folder.
        model: the run's checkpoint at or before the step: a folder, a hub id, or ``embedded``.
        step: the global step, the first being 1.
        batch_id: ``step-N``, or ``<source>:<first>-<last>`` as in ``probe.parquet``.
        ids: row ids, or a file of them (JSON, a capsule, or one id per line).
        ledger: what ``cleanse.Guard`` wrote; without ``step`` its last spike, else its last step.
        run: files or folders that the run left (``trainer_state.json``, ``args.json``, YAML).
        trainer: see ``cleanse.order``, and ``rows``, ``row_ids``, ``index_files`` likewise. Without ``rows`` the
            records of the data are counted.
        rows: length of the dataset the trainer sampled from.
        settings: other settings of ``cleanse.order``: ``{"seed": 42, "per_device_batch": 4, "accum": 8}``.
        row_ids: see ``cleanse.order``.
        index_files: see ``cleanse.order``.
        adapter: a PEFT adapter: figures are then over its parameters.
        tokenizer: by default the model's own.
        chat_template: a template or its file, instead of the tokenizer's.
        max_length: tokens after which the trainer cut.
        truncation: how it cut (``keep_start``, ``keep_end``, ``split``, ``drop``).
        loss: which tokens carried loss (``auto``, ``answers``, ``assistant``, ``completion``, ``all``).
        dtype: what the run computed in: ``fp32``, ``bf16``, ``fp16``.
        loss_scale: of an fp16 run, or ``"dynamic"``.
        normalise: ``window``, ``micro-batch``, or ``auto``: as the trainer does.
        backend: ``torch`` or ``mindspore``.
        device: ``auto``, ``cpu``, ``cuda``, ``npu``, ``ascend``.
        format: how columns make a record.
        text_column: plain text in this column.
        rules: rule packs.
        out: a folder for the capsule and ``skip.json``.

    Raises:
        UsageError: what is given does not say which rows, or a value is unknown.
        OrderUnknown: the order cannot be known from the settings.
        CleanseError: the model or the data cannot be used.
    """
    inputs, ids = _capsule(_several(data), ids)
    files, checkpoint = _run_files(model, _several(run))
    trainer = trainer or files.values.get("trainer")
    settings = dict(settings or {})
    named = step is not None or batch_id is not None
    if rows is None and row_ids is None and index_files is None and named and ids is None and ledger is None:
        rows = count_rows(inputs, ReadOptions())
    located = locate(
        step=step,
        batch_id=batch_id,
        ids=ids,
        ledger=ledger,
        run=_with_state(model, _several(run)),
        trainer=trainer,
        rows=rows,
        settings=settings,
        row_ids=row_ids,
        index_files=index_files,
    )
    trainer = trainer or located.settings.get("trainer")
    wanted = (*located.rows, *located.rows_before)
    found = find_rows(inputs, wanted, positions=located.known_from == "order", read=ReadOptions())
    content = contents(found, load_packs(tuple(rules)), fmt=format, text_column=text_column)
    precision = precision_of(dtype, loss_scale, files, located)
    probe, module = opened_probe(backend, model, adapter, device)
    limit = max_length if max_length is not None else files.training.get("max_length")
    view = view_of(trainer, limit, truncation, loss)
    loaded = tokenizer_of(tokenizer, chat_template, model, probe)
    encoder = Encoder(loaded, first_id_of(probe, model), view)
    encoded = {row: encoder.encode(content[row]) for row in dict.fromkeys(wanted)}
    problems = {row: e.problem for row, e in encoded.items() if e.problem}
    if len(problems) == len(encoded):
        raise CleanseError(f"none of the {len(encoded)} rows could be encoded: {next(iter(problems.values()))}")
    per_micro_batch = mean_per_batch(normalise, trainer)
    replayer = Replayer(probe, module, precision, per_micro_batch=per_micro_batch)
    actions = {row: data.reasons[0].action for row, data in content.items() if data.reasons}
    measured = replayer.measure(located.micro_batches, located.rows_before, encoded, actions)
    log = _log(located, files, probe)
    diagnosis = diagnose(measured.step, measured.before, measured.left_out, log)
    bf16 = finite_in_bf16(diagnosis, measured, probe, module, encoded)
    notes = [*located.notes, *measured.notes, *remarks(located, checkpoint, problems)]
    result = ReplayResult(
        located=located,
        diagnosis=with_remark(with_remark(diagnosis, about_bf16(bf16)), about_rules(diagnosis, content)),
        measured=measured,
        rows=content,
        worst_tokens=worst_tokens_of(measured.worst, encoded, loaded),
        problems=problems,
        log=log,
        checkpoint_step=checkpoint,
        bf16_finite=bf16,
        dataset_length=rows if rows is not None else located.settings.get("rows"),
        model=probe.info.as_dict(),
        settings={
            **located.settings,
            "trainer": trainer or "",
            "tokenizer": tokenizer,
            "max_length": view.max_length,
            "truncation": truncation,
            "loss": loss,
            "dtype": precision.name,
            "loss_scale": precision.loss_scale,
            "normalise": "micro-batch" if per_micro_batch else "window",
        },
        notes=tuple(dict.fromkeys(notes)),
    )
    if out is not None:
        result.write(Path(out))
    return result


def _several(paths: Paths) -> list[str]:
    return [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(p) for p in paths]


def _capsule(inputs: list[str], ids: Any) -> tuple[list[str], Any]:
    """A capsule's folder stands for its rows and its ids."""
    if len(inputs) == 1 and (Path(inputs[0]) / "capsule.json").is_file():
        folder = Path(inputs[0])
        return [str(folder / "rows.jsonl")], folder / "capsule.json" if ids is None else ids
    if not inputs:
        raise UsageError("no data given: name the file or folder the run was trained on")
    return inputs, ids


def _with_state(model: str, run: list[str]) -> list[str]:
    """The run's files, the checkpoint's own state among them."""
    state = Path(model) / "trainer_state.json"
    return [*([str(state)] if state.is_file() and not run else []), *run]


def _run_files(model: str, run: list[str]) -> tuple[RunFiles, int | None]:
    """What the run left, and the global step of the checkpoint."""
    paths = _with_state(model, run)
    files = read_settings(paths) if paths else RunFiles()
    state = Path(model) / "trainer_state.json"
    checkpoint = None
    if state.is_file():
        progress = read_settings(state).progress
        checkpoint = progress[0] if progress else None
    return files, checkpoint


def _log(located: Located, files: RunFiles, probe: Any) -> RunLog:
    """What the run logged, with what its settings and the model add."""
    known = {**files.training, **located.settings}
    log = RunLog.from_history(located.history, located.step) if located.step is not None else RunLog()
    warmup, clip = known.get("warmup_steps"), known.get("max_grad_norm")
    return replace(
        log,
        warmup_steps=int(warmup) if isinstance(warmup, int | float) and warmup >= 1 else None,
        max_grad_norm=float(clip) if isinstance(clip, int | float) else None,
        guess_loss=math.log(probe.vocabulary),
    )
