"""The probe on MindSpore: how much each record would disturb training, with the names and meanings of the torch one.

probe = open_probe()                       # the embedded model on Ascend where there is one, else on the CPU
records = [r for text in texts for r in probe.encode([(text, True)])]
evidence = probe.losses(records)           # forward only
evidence = probe.gradients(records[:50])   # losses, gradient norms, sketches
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from numpy.typing import NDArray

from . import unigram
from .devices import DeviceInfo
from .encode import encode_segments
from .features import evidence
from .mindspore_decoder import (
    Decoder,
    DecoderBody,
    DecoderLoss,
    Operators,
    half_precision,
    parameters,
    tables,
)
from .mindspore_devices import describe_devices, pick_device
from .mindspore_ghost import GhostOperators, sign_parameter
from .mindspore_models import LoadedModel, load_model
from .mindspore_overflow import Replayed, replay_overflows
from .mindspore_passes import GradientPass, LossPass
from .mindspore_shapes import COMPILE_FROM, ShapedBatch, fill, plan_shapes, rung
from .mindspore_step import first_over, half_step, step_gradient
from .mindspore_watch import WatchingOperators
from .model_files import EMBEDDED, ModelError
from .order import reordered, word_starts
from .sketching import SignVectors
from .types import (
    NAN,
    HalfMeasures,
    Mask,
    ProbeInfo,
    ProbeOptions,
    ProbeRecord,
    RawMeasures,
    RecordEvidence,
    StepMeasures,
)

__all__ = [
    "DeviceInfo",
    "MindSporeProbe",
    "ModelError",
    "ProbeOptions",
    "ProbeRecord",
    "describe_devices",
    "open_probe",
]

#: Tokens of one padded batch. Graph mode on CPU keeps about 1 MB a token of the embedded model.
TOKEN_BUDGET = {"CPU": 2048, "GPU": 16_384, "Ascend": 16_384}
#: Above this many parameters graph mode on a CPU takes too much memory (13 GB for 135 M parameters, PyNative 2.8 GB).
GRAPH_PARAMETERS = 50_000_000
#: "auto" compiles where it pays, "graph" always, "pynative" never.
MODES = ("auto", "graph", "pynative")


def open_probe(
    model: str = EMBEDDED,
    *,
    adapter: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    token_budget: int | None = None,
    threads: int | None = None,  # noqa: ARG001 - the torch backend's; MindSpore sums in one order whatever its threads
    trust_remote_code: bool = False,
    mode: str = "auto",
    name_map: Iterable[tuple[str, str]] = (),
) -> MindSporeProbe:
    """Loads a model and puts it on a device. No code of a model's author ever runs, whatever `trust_remote_code` says.

    Raises ModelError where the model cannot be loaded, ValueError where the device or type is not to be had.
    """
    del trust_remote_code
    if dtype not in ("auto", "fp32", "float32"):
        raise ValueError(f"dtype {dtype!r}: the MindSpore probe runs in fp32 (what fp16 would do is predicted from it)")
    target = pick_device(device)
    loaded = load_model(model, adapter=adapter, name_map=name_map)
    return MindSporeProbe(loaded, device=target, token_budget=token_budget, mode=mode)


@dataclass(frozen=True)
class _Passes:
    """The gradient pass for one choice of options, as it is and compiled, and the widths of its channels."""

    plain: nn.Cell
    compiled: Callable[..., Any]
    channels: int
    slots: int
    places: tuple[str, ...] = ()  # what the slots of the watch are called, embeddings first, logits last
    met: Counter[int] = field(default_factory=Counter)  # batches of each length so far: a scan comes in many calls


class MindSporeProbe:
    """A model on a device, ready to measure records.

    Attributes:
        loaded: Configuration, weights and tokenizer.
        parameters: The weights on the device, by name; frozen, and shared by all passes.
        vocabulary: Ids must be below it.
        tokenizer: The model's own; None where it came without one.
    """

    def __init__(
        self, loaded: LoadedModel, *, device: str = "CPU", token_budget: int | None = None, mode: str = "auto"
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode {mode!r} is not one of {', '.join(MODES)}")
        self.device, self.mode = device, mode
        self.loaded = loaded
        self.tokenizer = loaded.tokenizer
        self.token_budget = token_budget or TOKEN_BUDGET.get(device, 2048)
        self.vocabulary = loaded.config.vocab_size
        self.parameters = parameters(loaded.weights, trainable=False)
        self._embed = self.parameters["model.embed_tokens.weight"]
        self._head = None if loaded.config.tied else self.parameters["lm_head.weight"]
        self._n_parameters = sum(values.size for values in loaded.weights.values())
        self._gradient_passes: dict[tuple[int, bool], _Passes] = {}
        self._loss_passes: _Passes | None = None
        self._word_starts: Mask | None = None
        counts = unigram.load_counts(loaded.folder, self.vocabulary) if loaded.folder else None
        self._surprisal: NDArray[np.float32] | None = None if counts is None else unigram.surprisal(counts)

    @property
    def info(self) -> ProbeInfo:
        """What this probe is made of."""
        return ProbeInfo(
            model=self.loaded.name,
            backend="mindspore",
            device=self.device.lower(),
            dtype="float32",
            parameters=self._n_parameters,
            method="ghost",
            notes=("operator by operator, for graph mode would take too much memory",) if self._too_large() else (),
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
        limit = min(max_tokens, self.loaded.config.max_positions)
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
        return self._run(records, options or ProbeOptions(), self._for_losses(), self._measure_losses)

    def gradients(self, records: Sequence[ProbeRecord], options: ProbeOptions | None = None) -> list[RecordEvidence]:
        """Forward and backward pass: losses, exact gradient norms, and what `options` ask for."""
        options = options or ProbeOptions()
        passes = self._for_gradients(options)
        return self._run(
            records, options, passes, lambda batch, chosen: self._measure_gradients(batch, chosen, passes, options)
        )

    def replay(self, records: Sequence[ProbeRecord], scaler: Any, *, amp_level: str = "O2") -> list[Replayed]:
        """Each record alone through this model made mixed-precision, with the run's loss scaler: what really overflows.

        Slow (fp16 on a CPU is emulated): for the handful of records of a failed step. Records without a supervised
        token have a NaN loss and count as finite.
        """
        model = DecoderLoss(half_precision(Decoder(self.loaded.config, self.loaded.weights), amp_level))
        done = {}
        for i, record in enumerate(records):
            if record.n_tokens:
                arrays = fill([record], 1, len(record.ids))
                inputs = tuple(Tensor(x) for x in (arrays.ids, arrays.targets, arrays.scale))
                done[i] = replay_overflows(model, [(*inputs, *tables(self.loaded.config, len(record.ids)))], scaler)[0]
        nothing = Replayed(loss=NAN, loss_finite=True, gradients_finite=True)
        return [done.get(i, nothing) for i in range(len(records))]

    def step(
        self,
        records: Sequence[ProbeRecord],
        weights: Sequence[float],
        *,
        loss_scale: float = 1.0,
        dtype: str = "float32",
    ) -> StepMeasures:
        """The gradient of a training step: of the sum of weight times mean loss. Records one after the other.

        Records without a supervised token, and those of weight 0, take no part. `dtype` is "float32", or "float16" with
        norms in float32.

        Raises ValueError for "bfloat16", which MindSpore refuses on a CPU.
        """
        if dtype not in ("float16", "float32"):
            raise ValueError(f"dtype {dtype!r}: the MindSpore backend replays float16 and float32")
        return step_gradient(self.loaded, records, weights, loss_scale=loss_scale, half=dtype == "float16")

    def half(self, record: ProbeRecord, *, weight: float, loss_scale: float, dtype: str) -> HalfMeasures:
        """One record of such a step in "float16" (norms in float32), or watched in "float32".

        The watch names the first place beyond float16 in the order of the model's layers.

        Args:
            record: With at least one supervised token.
            weight: What the trainer multiplied the record's mean loss with.
            loss_scale: What it multiplied the loss with before the backward pass.
            dtype: See above.

        Raises ValueError for "bfloat16", which MindSpore refuses on a CPU.
        """
        if dtype == "float16":
            loss, norm = half_step(self.loaded, record, weight=weight, loss_scale=loss_scale)
            return HalfMeasures(loss, norm)
        if dtype != "float32":
            raise ValueError(f"dtype {dtype!r}: the MindSpore backend replays float16 and float32")
        options = ProbeOptions(amax=True)
        passes = self._for_gradients(options)
        batch = ShapedBatch((0,), 1, len(record.ids), compiled=False)
        ends, scale, rest = self._arguments(batch, [record], passes)
        losses, channel, amax = (x.asnumpy() for x in passes.plain(*ends, scale, *rest))
        activation, gradient = amax[0, :, 0], amax[0, :, 1] * weight
        return HalfMeasures(
            loss=float(_supervised(losses[0], record).mean(dtype=np.float64)),
            grad_norm=float(np.sqrt(max(float(channel[0, 0]), 0.0))),
            activation_amax=float(activation.max()),
            grad_amax=float(gradient.max()),
            forward_place=first_over(passes.places, activation),
            backward_place=first_over(passes.places[::-1], gradient[::-1] * loss_scale),
        )

    def _too_large(self) -> bool:
        return self.device == "CPU" and self._n_parameters > GRAPH_PARAMETERS and self.mode == "auto"

    def _compile_from(self) -> int | None:
        if self.mode == "pynative" or self._too_large():
            return None
        return 1 if self.mode == "graph" or self.device != "CPU" else COMPILE_FROM

    def _for_losses(self) -> _Passes:
        if self._loss_passes is None:
            config = self.loaded.config
            body = DecoderBody(config, self.parameters, GhostOperators(config.norm_eps))
            cell = LossPass(body, self._embed, self._head).set_train(False)
            self._loss_passes = _Passes(cell, _compiled(cell), 1, 1)
        return self._loss_passes

    def _for_gradients(self, options: ProbeOptions) -> _Passes:
        key = (options.sketch, options.amax)
        if key not in self._gradient_passes:
            config = self.loaded.config
            signs = SignVectors(options.sketch) if options.sketch else None
            operators: Operators = GhostOperators(config.norm_eps, signs.pair if signs else None)
            watching = WatchingOperators(operators) if options.amax else None
            body = DecoderBody(config, self.parameters, watching or operators)
            cell = GradientPass(body, self._embed, self._head, self._end_signs(signs), watched=options.amax)
            cell.set_train(False)
            places = ("model.embed_tokens", *watching.places, "lm_head") if watching else ()
            slots = len(watching.places) if watching else 1
            self._gradient_passes[key] = _Passes(cell, _compiled(cell), 1 + options.sketch, slots, places)
        return self._gradient_passes[key]

    def _end_signs(self, signs: SignVectors | None) -> tuple[Parameter, ...]:
        """Signs of the head, then of the embedding; a tied weight is one parameter and has one pair."""
        if signs is None:
            return ()
        shape = (self.vocabulary, self.loaded.config.width)
        embed = [sign_parameter(f"embedding.{i}", x) for i, x in enumerate(signs.pair("embedding", *shape))]
        if self._head is None:
            return (*embed, *embed)
        return (*(sign_parameter(f"head.{i}", x) for i, x in enumerate(signs.pair("head", *shape))), *embed)

    def _arguments(
        self, batch: ShapedBatch, chosen: Sequence[ProbeRecord], passes: _Passes
    ) -> tuple[tuple[Tensor, Tensor], Tensor, tuple[Tensor, ...]]:
        """(ids, targets), scale, and the rest of a pass's arguments in order."""
        arrays = fill(chosen, batch.rows, batch.tokens)
        rest = (
            Tensor(np.zeros((batch.rows, passes.channels), np.float32)),
            Tensor(np.zeros((passes.slots, batch.rows, 2), np.float32)),
            Tensor(arrays.valid),
            *tables(self.loaded.config, batch.tokens),
        )
        return (Tensor(arrays.ids), Tensor(arrays.targets)), Tensor(arrays.scale), rest

    def _measure_losses(self, batch: ShapedBatch, chosen: Sequence[ProbeRecord]) -> list[RawMeasures]:
        passes = self._for_losses()
        ends, _, rest = self._arguments(batch, chosen, passes)
        losses = (passes.compiled if batch.compiled else passes.plain)(*ends, *rest).asnumpy()
        return [RawMeasures(token_losses=_supervised(losses[i], record)) for i, record in enumerate(chosen)]

    def _measure_gradients(
        self, batch: ShapedBatch, chosen: Sequence[ProbeRecord], passes: _Passes, options: ProbeOptions
    ) -> list[RawMeasures]:
        ends, scale, rest = self._arguments(batch, chosen, passes)
        found = (passes.compiled if batch.compiled else passes.plain)(*ends, scale, *rest)
        losses, channel, amax = (x.asnumpy() for x in found)
        # rounding may leave a squared norm of zero slightly negative; NaN stays NaN
        norms = np.sqrt(np.maximum(channel[:, 0].astype(np.float64), 0.0))
        sketches = channel[:, 1:] / np.float32(max(options.sketch, 1) ** 0.5)
        return [
            RawMeasures(
                token_losses=_supervised(losses[i], record),
                grad_norm=float(norms[i]),
                sketch=sketches[i].copy() if options.sketch else None,
                activation_amax=float(amax[i, :, 0].max()) if options.amax else NAN,
                grad_amax=float(amax[i, :, 1].max()) if options.amax else NAN,
            )
            for i, record in enumerate(chosen)
        ]

    def _run(
        self,
        records: Sequence[ProbeRecord],
        options: ProbeOptions,
        passes: _Passes,
        measure: Callable[[ShapedBatch, Sequence[ProbeRecord]], list[RawMeasures]],
    ) -> list[RecordEvidence]:
        raws: list[RawMeasures | None] = [self._refusal(record) for record in records]
        fine = [record if raws[i] is None else _nothing(record) for i, record in enumerate(records)]
        todo = plan_shapes(fine, self.token_budget, compile_from=self._compile_from(), before=passes.met)
        passes.met.update(rung(batch.tokens) for batch in todo)
        while todo:
            batch = todo.pop(0)
            chosen = [records[i] for i in batch.indices]
            try:
                found = measure(batch, chosen)
            except (RuntimeError, MemoryError) as error:
                if not _out_of_memory(error):
                    raise
                if len(chosen) == 1:
                    found = [_failed("out of memory")]
                else:
                    todo[:0] = _halves(batch)
                    continue
            for i, raw in zip(batch.indices, found, strict=True):
                raws[i] = raw
        surprisal = self._surprisal
        if surprisal is None:
            surprisal = np.full(self.vocabulary, np.nan, dtype=np.float32)
        return [
            evidence(record, raw or _failed(""), surprisal, options) for record, raw in zip(records, raws, strict=True)
        ]

    def _refusal(self, record: ProbeRecord) -> RawMeasures | None:
        """Ids that the embedding does not have: on a CPU the lookup gives zeros and no error, so they are told here."""
        ids = record.ids
        if len(ids) and (int(ids.max()) >= self.vocabulary or int(ids.min()) < 0):
            worst = int(ids.max()) if int(ids.max()) >= self.vocabulary else int(ids.min())
            return _failed(f"token id {worst} is outside the model's vocabulary of {self.vocabulary}")
        if len(ids) > self.loaded.config.max_positions:
            return _failed(f"{len(ids)} tokens, but the model has {self.loaded.config.max_positions} positions")
        return None


def _compiled(cell: nn.Cell) -> Callable[..., Any]:
    """The Cell in graph mode, compiled anew for every shape it meets."""

    # A named function in a file: graph mode reads the source, and a lambda or an interactive line has none.
    def run(*arguments: Tensor) -> Any:
        return cell(*arguments)

    compiled: Callable[..., Any] = ms.jit(run)
    return compiled


def _supervised(losses: NDArray[np.float32], record: ProbeRecord) -> NDArray[np.float32]:
    """The losses of supervised tokens in order; position t of `losses` predicts token t + 1."""
    kept: NDArray[np.float32] = losses[: len(record.ids) - 1][record.supervised[1:]]
    return kept


def _halves(batch: ShapedBatch) -> list[ShapedBatch]:
    """The same records in two batches, operator by operator: that takes the least memory."""
    middle = len(batch.indices) // 2
    parts = (batch.indices[:middle], batch.indices[middle:])
    return [ShapedBatch(part, len(part), batch.tokens, compiled=False) for part in parts]


def _nothing(record: ProbeRecord) -> ProbeRecord:
    """A stand-in that no batch will hold."""
    return ProbeRecord(ids=record.ids[:0], supervised=record.supervised[:0])


def _failed(problem: str) -> RawMeasures:
    return RawMeasures(token_losses=np.zeros(0, dtype=np.float32), problem=problem)


def _out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(
        sign in text for sign in ("out of memory", "memory not enough", "memory isn't enough", "alloc")
    )
