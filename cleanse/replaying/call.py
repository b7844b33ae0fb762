"""``cleanse.replay``: from a step to the record that did it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cleanse.errors import CleanseError, UsageError
from cleanse.probing.backends import backend as load_backend
from cleanse.replaying.content import DataRow, contents
from cleanse.replaying.data import count_rows, find_rows
from cleanse.replaying.diagnosis import Diagnosis, Kind, diagnose
from cleanse.replaying.figures import RunLog
from cleanse.replaying.locating import Located, locate
from cleanse.replaying.measuring import PRECISIONS, Measured, Precision, Replayer, Worst
from cleanse.replaying.result import ReplayResult, WorstToken, finite, with_remark
from cleanse.replaying.runfiles import RunFiles, read_settings
from cleanse.replaying.steps import OrderUnknown, RowId
from cleanse.replaying.tokens import Encoded, Encoder
from cleanse.rulepacks import load_packs
from cleanse.sources import ReadOptions
from cleanse.tokenizers_io import LoadedTokenizer, TokenizerError, load_tokenizer
from cleanse.trainer_view import TRAINERS as VIEWS
from cleanse.trainer_view import TrainerSettings

WHOLE_WINDOW = ("hf", "trl", "ms-swift", "llama-factory")
"""Trainers that divide by the token count of the whole accumulation window; the others take a mean per batch."""

NORMALISATIONS = ("auto", "window", "micro-batch")
_AROUND = 12  # tokens shown on each side of the worst

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
    precision = _precision(dtype, loss_scale, files, located)
    probe, module = _opened(backend, model, adapter, device)
    limit = max_length if max_length is not None else files.training.get("max_length")
    view = _view(trainer, limit, truncation, loss)
    loaded = _tokenizer(tokenizer, chat_template, model, probe)
    encoder = Encoder(loaded, _first_id(probe, model), view)
    encoded = {row: encoder.encode(content[row]) for row in dict.fromkeys(wanted)}
    problems = {row: e.problem for row, e in encoded.items() if e.problem}
    if len(problems) == len(encoded):
        raise CleanseError(f"none of the {len(encoded)} rows could be encoded: {next(iter(problems.values()))}")
    per_micro_batch = _per_micro_batch(normalise, trainer)
    replayer = Replayer(probe, module, precision, per_micro_batch=per_micro_batch)
    actions = {row: data.reasons[0].action for row, data in content.items() if data.reasons}
    measured = replayer.measure(located.micro_batches, located.rows_before, encoded, actions)
    log = _log(located, files, probe)
    diagnosis = diagnose(measured.step, measured.before, measured.left_out, log)
    bf16 = _finite_in_bf16(diagnosis, measured, probe, module, encoded)
    notes = [*located.notes, *measured.notes, *_remarks(located, checkpoint, problems)]
    result = ReplayResult(
        located=located,
        diagnosis=with_remark(with_remark(diagnosis, _about_bf16(bf16)), _about_rules(diagnosis, content)),
        measured=measured,
        rows=content,
        worst_tokens=_worst_tokens(measured.worst, encoded, loaded),
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


def _precision(dtype: str | None, loss_scale: float | str | None, files: RunFiles, located: Located) -> Precision:
    """The run's precision: as said, else as its files or the capsule have it."""
    name = dtype or located.settings.get("dtype")
    if name is None:
        name = "fp16" if files.training.get("fp16") else "bf16" if files.training.get("bf16") else "fp32"
    if name not in PRECISIONS:
        raise UsageError(f"dtype is {name!r}: expected one of {', '.join(PRECISIONS)}")
    scale: float | None = None
    if isinstance(loss_scale, str) and loss_scale != "dynamic":
        try:
            loss_scale = float(loss_scale)
        except ValueError:
            raise UsageError(f"the loss scale is {loss_scale!r}: expected a number, or dynamic") from None
    if isinstance(loss_scale, int | float):
        scale = float(loss_scale)
    else:
        logged = [e for e in located.history if e.get("step") == located.step]
        told = logged[-1].get("loss_scale") if logged else located.settings.get("loss_scale")
        scale = float(told) if told is not None else None
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise UsageError(f"the loss scale is {scale}: expected a number above 0")
    return Precision(name, scale)


def _opened(name: str, model: str, adapter: str | None, device: str) -> tuple[Any, Any]:
    module = load_backend(name)
    try:
        return module.open_probe(model, adapter=adapter, device=device, dtype="float32"), module
    except (ValueError, OSError, RuntimeError) as error:
        raise CleanseError(f"the checkpoint {model!r} cannot be replayed: {error}") from error


def _view(trainer: str | None, max_length: int | None, truncation: str | None, loss: str | None) -> TrainerSettings:
    given: dict[str, Any] = {"max_length": max_length, "truncation": truncation, "loss": loss}
    try:
        return TrainerSettings.of(trainer if trainer in VIEWS else "generic", **given)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _tokenizer(tokenizer: str | None, chat_template: str | None, model: str, probe: Any) -> LoadedTokenizer | None:
    """The tokenizer asked for, else that of the model; None where the model has none."""
    folder = probe.loaded.folder
    try:
        return load_tokenizer(tokenizer or str(folder or model), chat_template)
    except TokenizerError as error:
        if tokenizer is not None:
            raise UsageError(f"tokenizer {tokenizer}: {error}") from error
        return None


def _first_id(probe: Any, model: str) -> int | None:
    first: int | None = probe.loaded.first_id
    config = Path(model) / "config.json"
    if first is None and config.is_file():
        told = json.loads(config.read_text("utf-8")).get("bos_token_id")
        first = told if isinstance(told, int) else None
    return first


def _per_micro_batch(normalise: str, trainer: str | None) -> bool:
    if normalise not in NORMALISATIONS:
        raise UsageError(f"normalise is {normalise!r}: expected one of {', '.join(NORMALISATIONS)}")
    if normalise == "auto":
        return trainer is not None and trainer not in WHOLE_WINDOW
    return normalise == "micro-batch"


def _log(located: Located, files: RunFiles, probe: Any) -> RunLog:
    """What the run logged, with what its settings and the model add."""
    from dataclasses import replace  # noqa: PLC0415

    known = {**files.training, **located.settings}
    log = RunLog.from_history(located.history, located.step) if located.step is not None else RunLog()
    warmup, clip = known.get("warmup_steps"), known.get("max_grad_norm")
    return replace(
        log,
        warmup_steps=int(warmup) if isinstance(warmup, int | float) and warmup >= 1 else None,
        max_grad_norm=float(clip) if isinstance(clip, int | float) else None,
        guess_loss=math.log(probe.vocabulary),
    )


def _finite_in_bf16(
    diagnosis: Diagnosis, measured: Measured, probe: Any, module: Any, encoded: Mapping[RowId, Encoded]
) -> bool | None:
    """Whether the rows that overflow would not in bf16; None where that is no question or cannot be tried here."""
    if diagnosis.kind is not Kind.PRECISION or measured.step.precision != "fp16":
        return None
    rows = diagnosis.culprits or tuple(r.row for r in measured.step.rows if r.n_supervised)
    scale = measured.step.loss_scale or 1.0
    try:
        tried = [
            probe.half(
                module.ProbeRecord(ids=encoded[row].ids, supervised=encoded[row].supervised),
                weight=max(measured.step.weight(r) for r in measured.step.rows if r.row == row),
                loss_scale=scale,
                dtype="bfloat16",
            )
            for row in rows
        ]
    except (ValueError, RuntimeError):
        return None
    return all(finite(x.loss) and finite(x.grad_norm) for x in tried)


def _about_bf16(found: bool | None) -> str:
    if found is None:
        return ""
    return "Replayed in bf16 it is finite." if found else "Replayed in bf16 it is not finite either."


def _about_rules(diagnosis: Diagnosis, content: Mapping[RowId, DataRow]) -> str:
    """Which rule stands beside the figures of the rows that are accused; where none is, of those of the step."""
    rows = diagnosis.culprits or tuple(r.row for r in diagnosis.ranking)
    rejected = [(row, r.rule) for row in rows for r in content[row].reasons[:1] if r.action == "reject"]
    said = [f"row {row} ({rule})" for row, rule in rejected[:3]]
    return f"By the rules alone {', '.join(said)} would be rejected." if said else ""


def _remarks(located: Located, checkpoint: int | None, problems: Mapping[RowId, str]) -> list[str]:
    said = [f"row {row} took no part in the replay: {why}" for row, why in list(problems.items())[:5]]
    if located.step is None or checkpoint is None or checkpoint == located.step - 1:
        return said
    if checkpoint >= located.step:
        return [*said, f"the checkpoint is of step {checkpoint}: it has already learnt from step {located.step}"]
    apart = located.step - 1 - checkpoint
    return [*said, f"the checkpoint is {apart} steps older than the step: figures are those of its weights"]


def _worst_tokens(
    worst: Mapping[RowId, Worst], encoded: Mapping[RowId, Encoded], loaded: LoadedTokenizer | None
) -> dict[RowId, WorstToken]:
    """The worst token of each row in its text; its number, where there is no tokenizer to read it."""
    made = {}
    for row, found in worst.items():
        ids, i = encoded[row].ids, found.index
        parts = (ids[max(0, i - _AROUND) : i], ids[i : i + 1], ids[i + 1 : i + 1 + _AROUND])
        before, text, after = (_decoded(part.tolist(), loaded) for part in parts)
        made[row] = WorstToken(i, found.loss, before, text, after)
    return made


def _decoded(ids: list[int], loaded: LoadedTokenizer | None) -> str:
    if loaded is None:
        return " ".join(map(str, ids))
    return str(loaded.tokenizer.decode(ids, skip_special_tokens=False))


__all__ = ["OrderUnknown", "ReplayResult", "replay", "rows_of_step"]
