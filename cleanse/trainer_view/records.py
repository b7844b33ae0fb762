"""Every record of a batch as the trainer will have it: exactly where it matters, by estimate elsewhere.

Rendering and encoding everything would cost as much as training-time preparation. A record is prepared exactly
when it is near or above the maximum length, when hardly anything of it is trained on, when it has more than
roles and strings, or when the template refuses its shape (roles in order, which of them are empty). The rest is
known to fit and to keep its supervised tokens; their counts are estimates. What is known of a shape comes from a
stand-in with one letter per text, never from the records met so far: verdicts must not depend on their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cleanse.formats import Conversation, Conversations, Turns
from cleanse.formats.leaves import is_list, is_string
from cleanse.formats.turns import ROLE_KEYS, TEXT_KEYS, WEIGHT_KEYS
from cleanse.measures import TextBatch
from cleanse.trainer_view.guarded import guarded, is_panic
from cleanse.trainer_view.prepared import Prepared, Trainer
from cleanse.trainer_view.template import TemplateRefusedError
from cleanse.trainer_view.word_table import LONGEST_PIECE
from cleanse.trainer_view.words import ERROR_SHARE, ERROR_TOKENS, TokenTally

FEW_TRAINED = 2  # estimated supervised tokens at or below which the count is made exact
CLEARLY_OVER = 1.5  # times the maximum length, by a sampled count
LARGEST_EXACT = 512 << 10  # bytes of text above which a record is never encoded as a whole
IMAGE_MARKS = ("<image>", "<|image_pad|>", "<|image|>", "<|vision_start|>", "[IMG]")

NAN = float("nan")

Counts = Callable[[NDArray[np.bool_]], TokenTally]


class ShapeMemory(dict[int, float]):
    """Tokens that template and trainer add to a record, by its shape; NaN where the template refuses it."""


@dataclass
class RecordReport:
    """Per record, shape (records,). NaN: does not apply, or the record cannot be encoded."""

    tokens: NDArray[np.float64]  # of the whole conversation; of the longer side of a pair
    exact: NDArray[np.bool_]  # whether this record was rendered and encoded
    trained: NDArray[np.float64]  # supervised tokens before truncation
    left: NDArray[np.float64]  # supervised tokens after truncation; of the emptier side of a pair
    refused: NDArray[np.bool_]  # the chat template raised
    failed: NDArray[np.bool_]  # the tokenizer panicked
    stop_lost: NDArray[np.float64]  # 1: tokens are trained on, the end token among them before truncation only
    same_pair: NDArray[np.float64]  # 1: chosen and rejected are equal after truncation and differ before
    expanded: NDArray[np.float64]  # tokens with every image placeholder expanded
    marker_lost: NDArray[np.float64]  # 1: the response marker is not among the text's ids
    words: dict[int, str]  # what to tell about a record: the template's own words

    @classmethod
    def blank(cls, n: int) -> RecordReport:
        """A report that says nothing about n records."""

        def unknown() -> NDArray[np.float64]:
            return np.full(n, NAN)

        def no() -> NDArray[np.bool_]:
            return np.zeros(n, np.bool_)

        return cls(
            *(unknown(), no(), unknown(), unknown(), no(), no(), unknown(), unknown(), unknown(), unknown()), words={}
        )


def report_on(
    trainer: Trainer, memory: ShapeMemory, texts: TextBatch, tally: TokenTally, *, counted: Counts
) -> RecordReport:
    """Judges every record of the batch. ``counted`` gives full counts for the segments that are marked."""
    n = texts.n_records
    report = RecordReport.blank(n)
    talks: Conversations | None = texts.memo.get("conversations")
    if n == 0 or talks is None:
        return report
    tokens = np.bincount(texts.record, tally.tokens, n).astype(np.float64)
    learnt = np.bincount(texts.record, tally.tokens * texts.supervised, n).astype(np.float64)
    longest = np.zeros(n, np.int64)
    np.maximum.at(longest, texts.record, tally.longest)
    shape, odd = _shapes(texts, talks)
    shapes, first, which = np.unique(shape, return_index=True, return_inverse=True)
    for key, record in zip(shapes.tolist(), first.tolist(), strict=True):
        if key not in memory and not odd[record]:
            memory[key] = _added(trainer, talks[record])
    added = np.array([memory.get(key, 0.0) for key in shapes.tolist()])[which]
    refused = np.isnan(added)
    added = np.nan_to_num(added)
    images = _images(texts, n) if trainer.settings.tokens_per_image else np.zeros(n)
    report.failed |= np.bincount(texts.record, tally.failed, n) > 0
    size = np.bincount(texts.record, np.diff(texts.offsets), n)
    skip = (longest > LONGEST_PIECE) | report.failed
    huge = size > LARGEST_EXACT
    limit = trainer.max_length
    report.tokens, report.trained, report.left = tokens + added, learnt, learnt.copy()
    ask = odd | refused | (learnt <= FEW_TRAINED) | (trainer.settings.response_template is not None)
    if limit is not None:
        more = added + images * trainer.settings.tokens_per_image
        fits = _most(texts, tally) + more <= limit
        unclear = ~fits & ~skip & ~(tokens > CLEARLY_OVER * limit)  # what is surely over is encoded as it is
        tally = counted(unclear[texts.record])
        fits |= _most(texts, tally) + more <= limit
        ask |= ~fits
        tokens = np.bincount(texts.record, tally.tokens, n).astype(np.float64)
        report.tokens = np.where(fits, np.minimum(tokens + added, limit), tokens + added)
        _by_position(report, texts, tally, trainer, chosen=huge & ~fits)
    ask &= ~skip & ~huge
    for record in np.flatnonzero(ask).tolist():
        _prepare(trainer, report, record, talks[record])
    for values in (report.tokens, report.trained, report.left):
        values[skip] = NAN
    report.expanded = np.where(images > 0, report.tokens + images * trainer.settings.tokens_per_image, NAN)
    return report


def _most(texts: TextBatch, tally: TokenTally) -> NDArray[np.float64]:
    """The most tokens each record's texts can have."""
    most = (1 + ERROR_SHARE) * tally.most + ERROR_TOKENS
    return np.bincount(texts.record, most, texts.n_records).astype(np.float64)


def _added(trainer: Trainer, talk: Conversation) -> float:
    """Tokens beyond those of the texts, from the same conversation with one letter per text."""
    standin = replace(
        talk,
        turns=[_short(turn) for turn in talk.turns],
        rejected=None if talk.rejected is None else [_short(turn) for turn in talk.rejected],
        prompt_text=talk.prompt_text and "x",
        answer_text=talk.answer_text and "x",
        rejected_text=talk.rejected_text and "x",
    )
    try:
        sides = [trainer.prepare(standin, rejected=rejected) for rejected in {False, talk.rejected is not None}]
    except TemplateRefusedError:
        return NAN
    return float(max(side.n_tokens for side in sides))


def _short(turn: dict[str, Any]) -> dict[str, Any]:
    content = turn.get("content")
    return {**turn, "content": "x"} if isinstance(content, str) and content else turn


def _prepare(trainer: Trainer, report: RecordReport, record: int, talk: Conversation) -> None:
    """Puts the exact figures of one record into the report."""
    try:
        sides = [trainer.prepare(talk)]
        if talk.rejected is not None:
            sides.append(trainer.prepare(talk, rejected=True))
    except TemplateRefusedError as error:
        report.refused[record] = True
        report.words[record] = str(error)
        report.tokens[record] = report.trained[record] = report.left[record] = NAN
        return
    except BaseException as error:
        if not (is_panic(error) or isinstance(error, Exception)):
            raise
        report.failed[record] = True
        report.words[record] = f"{type(error).__name__}: {error}"
        return
    report.exact[record] = True
    report.tokens[record] = max(side.n_tokens for side in sides)
    report.trained[record] = min(side.n_trained for side in sides)
    report.left[record] = min(side.n_trained_left for side in sides)
    first = sides[0]
    limit = trainer.max_length
    prompt = first.n_tokens - first.n_trained
    if limit is not None and first.n_tokens > limit:
        report.words[record] = (
            f"{int(report.left[record])} of {int(report.trained[record])} supervised tokens left after truncation to "
            f"{limit} (prompt {prompt} tokens, {trainer.settings.truncation.replace('_', ' ')})"
        )
    if not talk.document:  # a cut document has lost its end, as everybody knows
        report.stop_lost[record] = _stop_lost(trainer, first)
    if len(sides) == 2:  # noqa: PLR2004 - a pair
        same, before = (np.array_equal(getattr(sides[0], k), getattr(sides[1], k)) for k in ("kept_ids", "ids"))
        report.same_pair[record] = float(same and not before)
    if trainer.settings.response_template is not None:
        report.marker_lost[record] = _marker_lost(trainer, first)


def _stop_lost(trainer: Trainer, side: Prepared) -> float:
    """1 where an end token carried loss and truncation took it, while other trained tokens stay."""
    ends = list(trainer.loaded.special.values())
    before = np.isin(side.ids[side.trained], ends)
    after = np.isin(side.ids[side.kept][side.trained[side.kept]], ends)
    return float(before.any() and not after.any() and side.n_trained_left > 0)


def _marker_lost(trainer: Trainer, side: Prepared) -> float:
    """1 where the ids of the response marker do not stand among the text's ids.

    Older TRL looks for the ids of the marker encoded alone; beside other characters they come out otherwise. Where
    the text does not hold the marker at all, the record is ignored just as well.
    """
    marker = trainer.settings.response_template or ""
    found = guarded(lambda: trainer.loaded.tokenizer.encode(marker, add_special_tokens=False).ids)
    wanted = np.array(found or [], np.int64)
    if len(wanted) == 0:
        return 0.0
    if len(wanted) > len(side.ids):
        return 1.0
    windows = np.lib.stride_tricks.sliding_window_view(side.ids, len(wanted))
    return float(not (windows == wanted).all(axis=1).any())


def _by_position(
    report: RecordReport, texts: TextBatch, tally: TokenTally, trainer: Trainer, *, chosen: NDArray[np.bool_]
) -> None:
    """Supervised tokens left in records too large to encode, from where their segments lie.

    Counts of such long texts are off by some per cent, and so are the figures here.
    """
    limit = trainer.max_length or 0
    for record in np.flatnonzero(chosen).tolist():
        here = np.flatnonzero(texts.record == record)
        ends = np.cumsum(tally.tokens[here]).astype(np.float64)
        starts = ends - tally.tokens[here]
        how = trainer.settings.truncation
        low, high = {"keep_start": (0.0, float(limit)), "keep_end": (ends[-1] - limit, ends[-1])}.get(how, (0.0, 0.0))
        if how == "split":
            low, high = 0.0, float(limit)  # every answer keeps its share
            starts = np.where(texts.supervised[here], 0.0, starts)
        kept = np.clip(np.minimum(ends, high) - np.maximum(starts, low), 0, None)
        report.left[record] = float(np.round(kept[texts.supervised[here]].sum()))
        report.words[record] = (
            f"about {int(report.left[record])} of {int(report.trained[record])} supervised tokens left after "
            f"truncation to {limit}"
        )


def _images(texts: TextBatch, n: int) -> NDArray[np.float64]:
    column = texts.arrow()
    counts = sum(np.asarray(pc.count_substring(column, mark)) for mark in IMAGE_MARKS)
    return np.bincount(texts.record, counts, n).astype(np.float64)


def _shapes(texts: TextBatch, talks: Conversations) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """A number per record for the order of its roles and which texts are empty; and which records are odd.

    Odd records hold more than roles and strings (tool calls, content parts, tools): each is rendered.
    """
    n = texts.n_records
    empty = np.diff(texts.offsets) == 0
    code = texts.role.astype(np.uint64) * np.uint64(2) + empty.astype(np.uint64) + np.uint64(1)
    shape = _hashed(code, texts.record, n)
    turns: Turns | None = texts.memo.get("turns")
    odd = np.zeros(n, np.bool_)
    if turns is None:
        return shape, odd
    names = pc.dictionary_encode(turns.name)
    hashes = np.array([_text_hash(name) for name in names.dictionary.to_pylist()] + [7], np.uint64)
    codes = names.indices.fill_null(len(hashes) - 1).to_numpy(zero_copy_only=False)
    shape ^= _hashed(hashes[codes] ^ turns.column.astype(np.uint64), turns.record, n) * np.uint64(31)
    for part in talks.fmt.parts:
        at = talks.batch.schema.get_field_index(part.column)
        if part.kind == "messages" and at >= 0 and not _plain_turns(talks.batch.schema.field(at).type):
            odd[:] = True
    if any(name in talks.batch.schema.names for name in ("tools", "functions", "chat_template_kwargs")):
        odd[:] = True
    return shape, odd


def _plain_turns(kind: pa.DataType) -> bool:
    """Whether turns of this type hold nothing but a role, a string, and a training switch."""
    turn = kind.value_type if is_list(kind) else kind
    if not pa.types.is_struct(turn):
        return False
    known = {*ROLE_KEYS, *TEXT_KEYS, *WEIGHT_KEYS}
    strings = {*ROLE_KEYS, *TEXT_KEYS}
    return all(f.name in known and (f.name not in strings or is_string(f.type)) for f in turn)


def _hashed(codes: NDArray[np.uint64], record: NDArray[np.int64], n: int) -> NDArray[np.uint64]:
    """An order-sensitive 64-bit hash of each record's codes."""
    first = np.searchsorted(record, np.arange(n))
    position = (np.arange(len(record)) - first[record]).astype(np.uint64) if len(record) else codes
    mixed = (codes + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) ^ (position + np.uint64(1)) * np.uint64(
        0xC2B2AE3D27D4EB4F
    )
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    out = np.zeros(n, np.uint64)
    np.add.at(out, record, mixed)
    return out


def _text_hash(text: str) -> int:
    value = 1469598103934665603
    for byte in text.encode():
        value = ((value ^ byte) * 1099511628211) % (1 << 64)
    return value
