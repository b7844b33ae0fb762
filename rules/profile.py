"""Measures that come out of the profile kernel: one decode of the batch feeds them all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cleanse.measures import Measure, Span, TextBatch, Values, register
from cleanse.rule_evaluation import SCRIPT_MEASURE, pack_script

from . import classes as c
from . import locate
from . import profile_columns as col
from .contexts import joining_scripts, unspaced_scripts, windows_bytes
from .ngram_model import model
from .ratios import share

INVISIBLE = (c.SPACE, c.NEWLINE, c.CONTROL, c.ZERO_WIDTH, c.BIDI, c.TAG, c.VARIATION, c.FORMAT)


def profile_of(texts: TextBatch) -> NDArray[np.int64]:
    """The profile of a batch: shape (profile_columns.N_COLUMNS, segments), computed once."""
    return texts.once("profile", _compute)


def _compute(texts: TextBatch) -> NDArray[np.int64]:
    from .profile_kernel import profile  # noqa: PLC0415 - numba loads when a batch is measured

    out = np.zeros((col.N_COLUMNS, len(texts)), np.int64)
    profile(
        np.ascontiguousarray(texts.data),
        np.ascontiguousarray(texts.offsets),
        c.character_table(),
        joining_scripts(),
        unspaced_scripts(),
        windows_bytes("cp1252"),
        windows_bytes("cp1251"),
        model().pairs,
        out,
    )
    return out


Rows = NDArray[np.int64]


def _count(name: str, unit: str, doc: str, *columns: int, find: Callable[[str], list[Span]] | None = None) -> None:
    """Registers the sum of some columns as a measure."""

    def compute(texts: TextBatch) -> Values:
        rows = profile_of(texts)
        if len(columns) == 1:
            return rows[columns[0]].astype(np.float64)
        total: Values = rows[list(columns)].sum(axis=0).astype(np.float64)
        return total

    register(Measure(name, unit, doc, compute, find))


def _ratio(
    name: str, unit: str, doc: str, over: Callable[[Rows], Rows], *columns: int,
    find: Callable[[str], list[Span]] | None = None,
) -> None:  # fmt: skip
    """Registers the share of some columns in another count; NaN where that is 0."""

    def compute(texts: TextBatch) -> Values:
        rows = profile_of(texts)
        part, whole = rows[list(columns)].sum(axis=0), over(rows)
        return share(part, whole)

    register(Measure(name, unit, doc, compute, find))


def _chars(rows: Rows) -> Rows:
    return rows[col.CHARS]


def _letters(rows: Rows) -> Rows:
    return rows[col.WORD_LETTERS]


def _script(texts: TextBatch) -> Values:
    codes = np.array([pack_script(_SCRIPT_NAMES.get(code, code)) for code in c.script_codes()])
    scripts = profile_of(texts)[col.SCRIPT]
    packed: Values = np.where(scripts == c.COMMON, np.nan, codes[scripts])
    return packed


_SCRIPT_NAMES = {"Hira": "Jpan", "Kana": "Jpan", "Hang": "Kore"}


def _visible(texts: TextBatch) -> Values:
    rows = profile_of(texts)
    visible: Values = (rows[col.CHARS] - rows[list(INVISIBLE)].sum(axis=0)).astype(np.float64)
    return visible


def _ungrounded_bidi(texts: TextBatch) -> Values:
    rows = profile_of(texts)
    return np.where(rows[col.RTL_LETTERS] == 0, rows[col.BIDI_EMBEDDINGS], 0).astype(np.float64)


def _foreign(texts: TextBatch) -> Values:
    return (np.diff(texts.offsets) - profile_of(texts)[col.CHARS]).astype(np.float64)


def _bytes(texts: TextBatch) -> Values:
    return np.diff(texts.offsets).astype(np.float64)


register(Measure(SCRIPT_MEASURE, "script", "Dominant script, packed by cleanse.rule_evaluation.", _script))
register(Measure("foreign_bytes", "bytes", "UTF-8 bytes beyond one per character: 0 in ASCII.", _foreign))
register(Measure("bytes", "bytes", "Length in UTF-8.", _bytes))
register(Measure("visible_chars", "visible characters", "Characters that leave a mark on paper.", _visible))
register(
    Measure("bidi_without_rtl", "characters", "Bidirectional embeddings and isolates in a text without any "
            "right-to-left letter.", _ungrounded_bidi, locate.bidi_embeddings)
)  # fmt: skip

_count("chars", "characters", "Length in characters (code points).", col.CHARS)
_count("nul_chars", "NUL characters", "U+0000 in the text.", col.NUL, find=locate.nul)
_count("control_chars", "control characters", "C0, DEL and C1 without tab, line ends and form feed.",
       c.CONTROL, find=locate.controls)  # fmt: skip
_ratio("control_share", "share of characters", "Control characters over all.", _chars, c.CONTROL,
       find=locate.controls)  # fmt: skip
_count("ansi_sequences", "sequences", "ESC [ sequences of terminals.", col.ANSI, find=locate.ansi)
_count("bidi_overrides", "overrides", "LRO and RLO.", col.BIDI_OVERRIDES, find=locate.bidi_overrides)
_count("stray_zero_width", "characters", "Zero-width characters that script and neighbours do not explain.",
       col.STRAY_ZERO_WIDTH, find=locate.stray_zero_width)  # fmt: skip
_count("stray_tags", "characters", "Tag characters outside a flag emoji.", col.STRAY_TAGS, find=locate.tags)
_count("stray_variation", "characters", "Variation selectors after nothing that has variants.",
       col.STRAY_VARIATION, find=locate.variation)  # fmt: skip
_count("longest_stray_run", "characters", "Stray invisible characters in a row.", col.LONGEST_STRAY_RUN,
       find=locate.invisible_runs)  # fmt: skip
_count("leading_bom", "characters", "U+FEFF as the first character.", col.LEADING_BOM, find=locate.first)
_count("longest_mark_run", "marks", "Combining marks in a row.", col.LONGEST_MARK_RUN, find=locate.marks)
_count("replacement_chars", "characters", "U+FFFD.", c.REPLACEMENT, find=locate.replacement)
_ratio("replacement_share", "share of characters", "U+FFFD over all.", _chars, c.REPLACEMENT,
       find=locate.replacement)  # fmt: skip
_count("noncharacters", "characters", "Code points that Unicode reserves for internal use.", c.NONCHARACTER,
       find=locate.noncharacters)  # fmt: skip
_count("private_use_chars", "characters", "Private-use characters.", c.PRIVATE, find=locate.private_use)
_ratio("private_use_share", "share of characters", "Private-use characters over all.", _chars, c.PRIVATE,
       find=locate.private_use)  # fmt: skip
_ratio("unassigned_share", "share of characters", "Unassigned code points over all.", _chars, c.UNASSIGNED,
       find=locate.unassigned)  # fmt: skip
_count("longest_run", "characters without a break", "Longest stretch without white space.", col.LONGEST_RUN,
       find=locate.longest_run)  # fmt: skip
_count("longest_word", "characters", "Longest stretch of letters, marks and digits.", col.LONGEST_WORD,
       find=locate.longest_word)  # fmt: skip
_count("longest_line", "characters", "Longest line.", col.LONGEST_LINE)
_count("lines", "lines", "Lines.", col.LINES)
_count("encoded_run", "characters", "Longest run that looks like base64 or hex.", col.ENCODED_RUN,
       find=locate.encoded)  # fmt: skip
_count("encoded_chars", "characters", "Characters in all runs that look like base64 or hex.",
       col.ENCODED_CHARS, find=locate.encoded)  # fmt: skip
_ratio("encoded_share", "share of characters", "Characters in runs that look like base64 or hex.", _chars,
       col.ENCODED_CHARS, find=locate.encoded)  # fmt: skip
_count("mixed_script_words", "words", "Words of Latin letters with Cyrillic or Greek look-alikes.",
       col.MIXED_WORDS, find=locate.mixed_words)  # fmt: skip
_ratio("digit_share", "share of characters", "Digits over all.", _chars, c.DIGIT)
_ratio("symbol_share", "share of characters", "Punctuation and symbols over all.", _chars, c.PUNCT, c.SYMBOL)
_ratio("space_share", "share of characters", "Spaces and line ends over all.", _chars, c.SPACE, c.NEWLINE)
_ratio("letter_share", "share of characters", "Letters and marks over all.", _chars, c.LOWER, c.UPPER,
       c.LETTER, c.MARK)  # fmt: skip
_ratio("script_purity", "share of letters", "Letters of the dominant script over all letters.", _letters,
       col.SCRIPT_LETTERS)  # fmt: skip
_ratio("mark_share", "share of letters", "Combining marks over letters and marks.", _letters, c.MARK)
