"""The probe on torch: how much each record would disturb training of a real model.

probe = open_probe()                       # the embedded model on the best device
records = [r for text in texts for r in probe.encode([(text, True)])]
evidence = probe.losses(records)           # forward only
evidence = probe.gradients(records[:50])   # losses, gradient norms, sketches
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from . import unigram
from .batching import pad_batch, plan_batches
from .devices import DeviceInfo, describe_devices, pick_device, pick_dtype
from .encode import encode_segments
from .features import evidence
from .model_files import EMBEDDED, ModelError
from .order import reordered, word_starts
from .sketching import SignVectors
from .torch_amax import AmaxHooks
from .torch_anatomy import Anatomy, NoGhostRuleError, dissect
from .torch_ghost import GhostHooks
from .torch_models import LoadedModel, load_model
from .torch_oracle import loop_norm
from .torch_passes import Batch, ghost_pass, loss_pass
from .torch_step import half_pass, step_gradient
from .types import HalfMeasures, Mask, ProbeInfo, ProbeOptions, ProbeRecord, RawMeasures, RecordEvidence, StepMeasures

__all__ = [
    "DeviceInfo",
    "ModelError",
    "ProbeOptions",
    "ProbeRecord",
    "TorchProbe",
    "describe_devices",
    "open_probe",
]

#: Tokens of one padded batch, by the kind of device. A CPU gains nothing from more than its cache holds.
TOKEN_BUDGET = {"cpu": 4096, "cuda": 32_768, "npu": 16_384, "mps": 8192}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def open_probe(
    model: str = EMBEDDED,
    *,
    adapter: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    token_budget: int | None = None,
    threads: int | None = None,
    trust_remote_code: bool = False,
) -> TorchProbe:
    """Loads a model and puts it on a device.

    `threads` sets torch's threads on a CPU, for the whole process: with one thread sums are taken in the same order
    on every machine, and figures do not depend on how many processors there are.

    Raises ModelError where the model cannot be loaded, ValueError where the device or type is not to be had.
    """
    place = pick_device(device)
    kind = pick_dtype(place, dtype)
    if threads is not None and place == "cpu":
        torch.set_num_threads(threads)
    loaded = load_model(model, adapter=adapter, dtype=DTYPES[kind], trust_remote_code=trust_remote_code)
    return TorchProbe(loaded, device=place, token_budget=token_budget)


class TorchProbe:
    """A model on a device, ready to measure records.

    Attributes:
        model: The module, in evaluation mode, every parameter frozen.
        trainable: The parameters that gradient norms are over, by name.
        vocabulary: Ids must be below it.
        tokenizer: The model's own; None where it came without one.
    """

    def __init__(self, loaded: LoadedModel, *, device: str = "cpu", token_budget: int | None = None) -> None:
        self.device = torch.device(device)
        self.loaded = loaded
        self.tokenizer = loaded.tokenizer
        self.token_budget = token_budget or TOKEN_BUDGET.get(self.device.type, 4096)
        self._notes: list[str] = []
        model = loaded.model.to(self.device).eval()
        self.anatomy: Anatomy | None
        try:
            self.anatomy = dissect(model)
        except NoGhostRuleError as error:
            self.anatomy = None
            self._notes.append(f"gradient norms one record at a time: {error}")
        self.trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._parameters = sum(p.numel() for p in self.trainable.values())
        for p in model.parameters():
            p.requires_grad = False
        self.model = model
        self._dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
        self.vocabulary = _vocabulary(loaded, self.anatomy)
        self._word_starts: Mask | None = None
        counts = unigram.load_counts(loaded.folder, self.vocabulary) if loaded.folder else None
        self._surprisal: NDArray[np.float32] | None = None if counts is None else unigram.surprisal(counts)

    @property
    def info(self) -> ProbeInfo:
        """What this probe is made of; the method may change when a layer without a rule is met."""
        return ProbeInfo(
            model=self.loaded.name,
            backend="torch",
            device=str(self.device),
            dtype=self._dtype,
            parameters=self._parameters,
            method="loop" if self.anatomy is None else "ghost",
            notes=tuple(self._notes),
        )

    @property
    def has_baseline(self) -> bool:
        """Whether context gains can be computed; else call `set_baseline` with the scan's controls first."""
        return self._surprisal is not None

    def set_baseline(self, controls: Sequence[ProbeRecord]) -> None:
        """Estimates the unigram baseline from records: the random, unsuspected controls of the scan.

        For models without a counts table. All records of a scan must be measured under one baseline.
        """
        self._surprisal = unigram.surprisal(unigram.estimate_counts(controls, self.vocabulary))

    def encode(
        self, segments: Sequence[tuple[str, bool]], *, max_tokens: int = 512, windows: int = 1
    ) -> list[ProbeRecord]:
        """(text, supervised) segments as the model reads them: see `encode_segments`.

        Raises ModelError where the model came without a tokenizer.
        """
        if self.tokenizer is None:
            raise ModelError(f"model {self.loaded.name!r} has no tokenizer.json")
        limit = min(max_tokens, self.loaded.max_positions)
        return encode_segments(
            self.tokenizer, segments, first_id=self.loaded.first_id, max_tokens=limit, windows=windows
        )

    def reordered(self, record: ProbeRecord) -> ProbeRecord | None:
        """The record with its supervised words in another order; None where it has too few: see `probes.order`."""
        if self._word_starts is None:
            if self.tokenizer is None:
                raise ModelError(f"model {self.loaded.name!r} has no tokenizer.json")
            self._word_starts = word_starts(self.tokenizer, self.vocabulary)
        return reordered(record, self._word_starts)

    def losses(self, records: Sequence[ProbeRecord], options: ProbeOptions | None = None) -> list[RecordEvidence]:
        """Forward pass only: losses and what follows from them, one evidence per record, in order.

        Never raises for a record: what is wrong with it stands in `problem`.
        """
        options = options or ProbeOptions()
        if self.anatomy is None:
            return self.gradients(records, options)
        anatomy = self.anatomy
        return self._run(records, options, lambda batch, _: loss_pass(anatomy, batch))

    def gradients(self, records: Sequence[ProbeRecord], options: ProbeOptions | None = None) -> list[RecordEvidence]:
        """Forward and backward pass: losses, exact gradient norms, and what `options` ask for."""
        options = options or ProbeOptions()
        if self.anatomy is not None:
            try:
                return self._ghost(self.anatomy, records, options)
            except NoGhostRuleError as error:
                self.anatomy = None
                self._notes.append(f"gradient norms one record at a time: {error}")
        return self._run(records, options, self._loop)

    def step(
        self,
        records: Sequence[ProbeRecord],
        weights: Sequence[float],
        *,
        loss_scale: float = 1.0,
        dtype: str = "float32",
    ) -> StepMeasures:
        """The gradient of a training step: of the sum of weight times mean loss. Records one after the other.

        Records without a supervised token, and those of weight 0, take no part. `dtype` is "float32", or "float16" or
        "bfloat16" under autocast.
        """
        return step_gradient(self.model, self.trainable, records, weights, loss_scale=loss_scale, dtype=dtype)

    def half(self, record: ProbeRecord, *, weight: float, loss_scale: float, dtype: str) -> HalfMeasures:
        """One record of such a step in 16 bits ("float16", "bfloat16"), or watched in "float32": see `half_pass`."""
        return half_pass(self.model, self.trainable, record, weight=weight, loss_scale=loss_scale, dtype=dtype)

    def _ghost(self, anatomy: Anatomy, records: Sequence[ProbeRecord], options: ProbeOptions) -> list[RecordEvidence]:
        signs = SignVectors(options.sketch) if options.sketch else None
        hooks = GhostHooks(anatomy, signs)
        hooks.open()
        amax = AmaxHooks(self.model) if options.amax else None
        if amax is not None:
            amax.open()
        try:
            return self._run(records, options, lambda b, _: ghost_pass(anatomy, hooks, b, signs=signs, amax=amax))
        finally:
            hooks.close()
            if amax is not None:
                amax.close()

    def _loop(self, batch: Batch, _: Sequence[ProbeRecord]) -> list[RawMeasures]:
        out = []
        for ids, supervised, length in zip(batch.ids, batch.supervised, batch.lengths.tolist(), strict=True):
            losses, norm = loop_norm(self.model, self.trainable, ids[:length], supervised[:length])
            out.append(RawMeasures(token_losses=losses.cpu().numpy(), grad_norm=norm))
        return out

    def _run(
        self,
        records: Sequence[ProbeRecord],
        options: ProbeOptions,
        measure: Callable[[Batch, Sequence[ProbeRecord]], list[RawMeasures]],
    ) -> list[RecordEvidence]:
        raws: list[RawMeasures | None] = [self._refusal(record) for record in records]
        fine = [record if raws[i] is None else _nothing(record) for i, record in enumerate(records)]
        todo = plan_batches(fine, self.token_budget)
        while todo:
            indices = todo.pop(0)
            chosen = [records[i] for i in indices]
            try:
                found = measure(self._batch(chosen), chosen)
            except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
                if not _out_of_memory(error):
                    raise
                _free(self.device)
                if len(indices) == 1:
                    found = [_failed("out of memory")]
                else:
                    half = len(indices) // 2
                    todo[:0] = [indices[:half], indices[half:]]
                    continue
            for i, raw in zip(indices, found, strict=True):
                raws[i] = raw
        surprisal = self._surprisal
        if surprisal is None:
            surprisal = np.full(self.vocabulary, np.nan, dtype=np.float32)
        return [
            evidence(record, raw or _failed(""), surprisal, options) for record, raw in zip(records, raws, strict=True)
        ]

    def _refusal(self, record: ProbeRecord) -> RawMeasures | None:
        """Ids the embedding does not have would end the process on some devices; they are told instead."""
        ids = record.ids
        if len(ids) and (int(ids.max()) >= self.vocabulary or int(ids.min()) < 0):
            worst = int(ids.max()) if int(ids.max()) >= self.vocabulary else int(ids.min())
            return _failed(f"token id {worst} is outside the model's vocabulary of {self.vocabulary}")
        if len(ids) > self.loaded.max_positions:
            return _failed(f"{len(ids)} tokens, but the model has {self.loaded.max_positions} positions")
        return None

    def _batch(self, records: Sequence[ProbeRecord]) -> Batch:
        ids, supervised, lengths = pad_batch(records, self.loaded.pad_id)
        return Batch(*(torch.from_numpy(x).to(self.device) for x in (ids, supervised, lengths)))


def _vocabulary(loaded: LoadedModel, anatomy: Anatomy | None) -> int:
    if anatomy is not None:
        return anatomy.vocabulary
    embedding = getattr(loaded.model, "get_input_embeddings", lambda: None)()
    return int(getattr(embedding, "num_embeddings", 0)) or int(loaded.model.config.vocab_size)  # type: ignore[union-attr, arg-type]


def _nothing(record: ProbeRecord) -> ProbeRecord:
    """A stand-in that no batch will hold."""
    return ProbeRecord(ids=record.ids[:0], supervised=record.supervised[:0])


def _failed(problem: str) -> RawMeasures:
    return RawMeasures(token_losses=np.zeros(0, dtype=np.float32), problem=problem)


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text


def _free(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
