"""Measures of what a tokenizer makes of a text. Without a tokenizer they apply to nothing (NaN).

The exception is ``control_strings``: the control tokens of well-known families are known without one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cleanse import measures
from cleanse.measures import Measure, Span, TextBatch, Values, register
from cleanse.rule_evaluation import unpack_script
from cleanse.tokenizers_io.families import AMBIGUOUS, family_strings
from cleanse.trainer_view.memo import MEMO

if TYPE_CHECKING:  # the context pulls numba and tokenizers in: not needed without a tokenizer
    from cleanse.trainer_view import TokenBatch, TokenContext

_ODD_DENSITY = 2.0  # density from which a segment is encoded exactly before any rule judges it
_SHORT = 24  # tokens below which a share or a density says nothing
_WINDOW = 700  # characters of each of three windows by which the density of a long text is judged
_REPEATS = 16  # periods of words from which a segment's ids are looked at (OLMo asks for 32 of tokens)
_REPEATS_BYTES = 256 << 10  # a longer text is judged by the repeats of its words
_PERIODS = 13
_ASCII = "a" + "".join(map(chr, range(0x20, 0x7F)))
_ENDS = 64  # characters at the end of a text in which its end token stands
_START = 64  # characters at the start of a text in which a rendered conversation shows its first control token


def _batch(texts: TextBatch) -> TokenBatch | None:
    context: TokenContext | None = texts.memo.get(MEMO)
    return None if context is None or len(texts) == 0 else context.of(texts)


def _not_known(texts: TextBatch) -> Values:
    return np.full(len(texts), np.nan)


def _of_batch(compute: Callable[[TextBatch, TokenBatch], Values]) -> Callable[[TextBatch], Values]:
    """A measure's compute from one that needs the tokenizer."""

    def measured(texts: TextBatch) -> Values:
        batch = _batch(texts)
        return _not_known(texts) if batch is None else compute(texts, batch)

    return measured


@cache
def _control_strings() -> tuple[str, ...]:
    return tuple(sorted((s for s in family_strings() if s not in AMBIGUOUS), key=lambda s: (-len(s), s)))


@cache
def _control_pattern() -> str:
    return "|".join(map(re.escape, _control_strings()))


def _locate_control(text: str) -> list[Span]:
    return [m.span() for m, _ in zip(re.finditer(_control_pattern(), text), range(5), strict=False)]


def _count_control(texts: TextBatch) -> Values:
    return _counted(texts, _control_pattern())[0]


def _counted(texts: TextBatch, pattern: str) -> tuple[Values, NDArray[np.int64]]:
    """Matches of an RE2 pattern per segment, and the segments that have any: to find those costs less than to count."""
    column = texts.arrow()
    rows = np.flatnonzero(np.asarray(pc.match_substring_regex(column, pattern)))
    counts = np.zeros(len(texts))
    if len(rows):
        counts[rows] = np.asarray(pc.count_substring_regex(column.take(pa.array(rows)), pattern))
    return counts, rows


def _count_inside(texts: TextBatch) -> Values:
    """Control strings but for one at the very end: documents prepared for pre-training close with their end token."""
    counts = texts.once("measure:control_strings", _count_control)
    inside = counts.copy()
    rows = np.flatnonzero(counts > 0)
    if len(rows):
        ends = pc.utf8_slice_codeunits(texts.arrow().take(pa.array(rows)), -_ENDS, None)
        inside[rows] -= np.asarray(pc.match_substring_regex(ends, f"(?:{_control_pattern()})\\s*$"))
    return inside


def _rendered(texts: TextBatch) -> Values:
    """1 where a text starts with a control token: a conversation that a template has already rendered."""
    counts = texts.once("measure:control_strings", _count_control)
    flags = np.zeros(len(texts))
    rows = np.flatnonzero(counts > 0)
    if len(rows):
        starts = pc.utf8_slice_codeunits(texts.arrow().take(pa.array(rows)), 0, _START)
        begins = r"^\s*(?:<s>|<bos>|" + _control_pattern() + ")"
        flags[rows] = np.asarray(pc.match_substring_regex(starts, begins))
    return flags


def _own_control(texts: TextBatch, batch: TokenBatch) -> Values:
    """Control strings of the loaded tokenizer, but for its end token at the very end of a text."""
    loaded = batch.context.loaded
    strings = [s for s in loaded.special if len(s) > 2 and not s.isalnum()]  # noqa: PLR2004
    if not strings:
        return np.zeros(len(texts))
    counts, rows = _counted(texts, "|".join(map(re.escape, sorted(strings, key=lambda s: (-len(s), s)))))
    end = loaded.named.get("eos_token")
    if end and len(rows):
        closed = np.asarray(pc.ends_with(pc.utf8_rtrim_whitespace(texts.arrow().take(pa.array(rows))), end))
        counts[rows] -= closed & texts.supervised[rows]
    return counts


def _density(texts: TextBatch, batch: TokenBatch) -> Values:
    """Tokens per character, over what the segment's script usually takes with this tokenizer.

    Of a text above 2,100 characters: of its start, middle and end together.
    """
    tally = batch.tally
    scripts = texts.once("measure:script", measures.get("script").compute)
    usual = _usual_density(batch.context)
    per_character = np.full(len(texts), np.nan)
    characters = np.asarray(pc.utf8_length(texts.arrow()), np.float64)
    expected = np.full(len(texts), np.nan)
    for value in np.unique(scripts[~np.isnan(scripts)]):
        expected[scripts == value] = usual.get(unpack_script(float(value)), np.nan)
    enough = (tally.tokens >= _SHORT) & batch.encodable
    per_character[enough] = tally.tokens[enough] / characters[enough]
    density = per_character / expected
    for segment in np.flatnonzero(density > _ODD_DENSITY * 0.9).tolist():
        parts = _windows(texts.text(segment))
        ids = [batch.context.counter.encode(part) for part in parts]
        counts = [len(some) for some in ids if some is not None]
        known = len(counts) == len(parts)
        density[segment] = sum(counts) / sum(map(len, parts)) / expected[segment] if known else np.nan
    return density


def _windows(text: str) -> list[str]:
    """The whole text, or its start, middle and end where it is long: density is judged by these, encoded exactly."""
    if len(text) <= 3 * _WINDOW:
        return [text]
    middle = (len(text) - _WINDOW) // 2
    return [text[:_WINDOW], text[middle : middle + _WINDOW], text[-_WINDOW:]]


def _usual_density(context: TokenContext) -> dict[str, float]:
    """Tokens per character by script, from the same declaration in many languages."""
    known: dict[str, float] | None = context.__dict__.get("_usual_density")
    if known is None:
        samples: dict[str, list[str]] = orjson.loads(
            files(__package__).joinpath("data").joinpath("script_samples.json").read_bytes()
        )
        known = {}
        for script, texts in samples.items():
            ids = [context.counter.encode(text) or [] for text in texts]
            known[script] = max(len(i) / len(text) for i, text in zip(ids, texts, strict=True))
        context.__dict__["_usual_density"] = known
    return known


def _share(counts: NDArray[np.int64], batch: TokenBatch) -> Values:
    tokens = batch.tally.tokens
    share = np.full(len(tokens), np.nan)
    enough = tokens >= _SHORT
    share[enough] = counts[enough] / tokens[enough]
    return share


def _byte_share(_: TextBatch, batch: TokenBatch) -> Values:
    return _share(batch.tally.byte_pieces, batch)


def _unknown_share(_: TextBatch, batch: TokenBatch) -> Values:
    return _share(batch.tally.unknown, batch)


def _repeats(_: TextBatch, batch: TokenBatch) -> Values:
    """Most times a period of 1 to 13 tokens repeats; exact wherever words or parts of one repeat."""
    from cleanse.trainer_view.cut_kernel import longest_period  # noqa: PLC0415 - compiles on first use

    tally = batch.tally
    values = tally.repeats.astype(np.float64)
    ask = tally.repeats >= _REPEATS
    ask &= np.diff(batch.texts.offsets) <= _REPEATS_BYTES  # equal words have equal ids: theirs repeat as often
    for segment in np.flatnonzero(ask & batch.encodable).tolist():
        ids = np.array(batch.exact(segment) or [], np.int32)
        best, lag = np.zeros(1, np.int64), np.zeros(1, np.int64)
        longest_period(ids, np.array([0, len(ids)]), _PERIODS, best, lag)
        values[segment] = float(best[0])
    return values


def _glitch(_: TextBatch, batch: TokenBatch) -> Values:
    return batch.tally.glitch.astype(np.float64) if batch.context.glitch else np.full(len(batch.texts), np.nan)


def _beyond(_: TextBatch, batch: TokenBatch) -> Values:
    known = batch.context.settings.model_vocab_size is not None
    return batch.tally.beyond.astype(np.float64) if known else np.full(len(batch.texts), np.nan)


def _changed(texts: TextBatch, batch: TokenBatch) -> Values:
    """Words that the tokenizer's normaliser rewrites, told from the text as a whole where it rewrites none."""
    counts = np.zeros(len(texts))
    normalizer = batch.context.loaded.tokenizer.normalizer
    if batch.context.loaded.pieces.lossless or normalizer is None:
        return counts
    column = texts.arrow()
    plain = np.asarray(pc.equal(pc.utf8_length(column), pc.binary_length(column)))
    if _rewrites(_ASCII, normalizer.normalize_str):
        plain = np.zeros(len(texts), np.bool_)
    for segment in np.flatnonzero(~plain & batch.encodable).tolist():
        text = texts.text(segment)
        if _rewrites(text, normalizer.normalize_str):
            counts[segment] = max(1, sum(_rewrites(word, normalizer.normalize_str) for word in text.split()))
    return counts


def _rewrites(text: str, normalize: Callable[[str], str]) -> bool:
    """Whether normalising changes more than how spaces are written (SentencePiece's U+2581, and one in front)."""
    return normalize(text).replace("\u2581", " ").strip(" ") != text.replace("\u2581", " ").strip(" ")


def _unbroken(_: TextBatch, batch: TokenBatch) -> Values:
    return batch.tally.longest.astype(np.float64)


def _failed(_: TextBatch, batch: TokenBatch) -> Values:
    return batch.tally.failed.astype(np.float64)


register(
    Measure(
        "control_strings",
        "control strings",
        "Control tokens of well-known model families, written out in the text",
        _count_control,
        _locate_control,
    )
)
register(
    Measure(
        "control_strings_inside",
        "control strings",
        "Control tokens of well-known model families, but for one that ends the text",
        _count_inside,
        _locate_control,
    )
)
register(Measure("rendered_conversation", "flag", "The text starts with a control token", _rendered))
for _name, _unit, _doc, _compute in (
    ("own_control_strings", "control strings", "Strings that this tokenizer turns into control ids", _own_control),
    ("token_density", "times the usual", "Tokens per character, over what the script usually takes", _density),
    ("byte_token_share", "share of tokens", "Tokens that are single bytes of longer characters", _byte_share),
    ("unknown_token_share", "share of tokens", "Tokens that stand for anything unknown", _unknown_share),
    ("token_repeats", "repeats", "Most times a period of 1 to 13 tokens repeats in a row", _repeats),
    ("glitch_tokens", "tokens", "Tokens that the model was hardly trained on", _glitch),
    ("tokens_beyond_embedding", "tokens", "Ids for which the model has no embedding", _beyond),
    (
        "changed_words",
        "words",
        "Words that the tokenizer's normaliser rewrites: they do not come back as they went in",
        _changed,
    ),
    ("unbroken_characters", "characters", "Longest stretch that no pre-tokenizer can cut", _unbroken),
    ("tokenizer_failures", "words", "Words at which the tokenizer panics", _failed),
):
    register(Measure(_name, _unit, _doc, _of_batch(_compute)))
