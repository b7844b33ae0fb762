"""One decode of the UTF-8 buffer, and every character counter of a segment from it.

The branches are ordered by how often real text takes them: word characters, spaces and punctuation first,
odd characters last. All loops are linear in the bytes; nothing is allocated per segment.
"""

from __future__ import annotations

from numba import njit
import numpy as np
from numpy.typing import NDArray

from cleanse.rules import classes as c
from cleanse.rules import profile_columns as col

# A run is taken for encoded data (base64, hex, tokens) when it is this long, nearly all ASCII letters and
# digits, and its neighbours differ in kind (a-z, A-Z, 0-9) this often; a capital before a small letter does not
# count, since words begin so. Random base64 changes at 48 % of its characters, hex at 47 %, base32 at 30 %;
# identifiers, URLs and chains of them stay under 23 %.
ENCODED_MIN = 48
ENCODED_CHANGES = 0.25
ENCODED_ALNUM = 0.9

_CHARS, _NUL, _RTL, _OVERRIDES, _EMBEDDINGS = (
    col.CHARS,
    col.NUL,
    col.RTL_LETTERS,
    col.BIDI_OVERRIDES,
    col.BIDI_EMBEDDINGS,
)
_BLACK_FLAG = 0x1F3F4


@njit(cache=True, nogil=True, inline="always")
def decode(data: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """Code point at byte ``i`` of valid UTF-8, and where the next one starts."""
    b = np.int64(data[i])
    if b < 0x80:
        return b, i + 1
    if b < 0xE0:
        return ((b & 0x1F) << 6) | (np.int64(data[i + 1]) & 0x3F), i + 2
    if b < 0xF0:
        return ((b & 0x0F) << 12) | ((np.int64(data[i + 1]) & 0x3F) << 6) | (np.int64(data[i + 2]) & 0x3F), i + 3
    return (
        ((b & 0x07) << 18)
        | ((np.int64(data[i + 1]) & 0x3F) << 12)
        | ((np.int64(data[i + 2]) & 0x3F) << 6)
        | (np.int64(data[i + 3]) & 0x3F)
    ), i + 4


@njit(cache=True, nogil=True)
def zero_width_fits(
    cp: int, prev: int, following: int, joins: NDArray[np.bool_], unspaced: NDArray[np.bool_], first: bool
) -> bool:
    """Whether a zero-width character is ordinary between these two characters (packed as in the table)."""
    prev_class, prev_script = prev & c.CLASS_MASK, prev >> c.SCRIPT_SHIFT
    next_class, next_script = following & c.CLASS_MASK, following >> c.SCRIPT_SHIFT
    if cp in (0x200C, 0x200D):
        if joins[prev_script] or (joins[next_script] and prev_class != c.ZERO_WIDTH):
            return True
        from_emoji = prev_script == c.EMOJI or prev_class == c.VARIATION
        return cp == 0x200D and from_emoji and next_script == c.EMOJI
    if cp == 0x200B:
        return unspaced[prev_script] or unspaced[next_script]
    if cp == 0xFEFF:
        return first  # a byte order mark, counted by itself
    if cp == 0x034F:  # combining grapheme joiner: between marks, or to keep two letters apart when sorting
        return prev_class == c.MARK or next_class == c.MARK
    if cp in (0x115F, 0x1160, 0x3164, 0xFFA0):  # Hangul fillers: beside Hangul letters
        prev_fits = prev_class == c.LETTER and prev_script == c.HANGUL
        return prev_fits or (next_class == c.LETTER and next_script == c.HANGUL)
    if cp in (0x17B4, 0x17B5, 0x180E):
        return joins[prev_script]
    if 0x2061 <= cp <= 0x2064:  # invisible operators of mathematics
        return prev_class <= c.SYMBOL and prev_class != c.MARK
    return False


@njit(cache=True, nogil=True)
def profile(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    table: NDArray[np.uint16],  # (0x110000,) from classes.character_table
    joins: NDArray[np.bool_],  # (scripts,) where ZWJ and ZWNJ are ordinary
    unspaced: NDArray[np.bool_],  # (scripts,) where ZWSP is ordinary
    byte_1252: NDArray[np.uint8],  # (0x2200,) windows-1252 byte of a code point, 0 for none
    byte_1251: NDArray[np.uint8],  # (0x2200,) the same for windows-1251
    out: NDArray[np.int64],  # (segments, N_COLUMNS), zeros
) -> None:
    """Fills one row of ``out`` per segment. ``data`` must be valid UTF-8 cut at segment borders."""
    per_script = np.zeros(256, np.int64)
    for s in range(len(offsets) - 1):
        row = out[s]
        i, end = offsets[s], offsets[s + 1]
        chars = 0
        prev = c.SPACE  # packed class and script of the character before
        script, script_n = c.COMMON, 0  # letters of one script in a row, not yet added up
        run = run_alnum = run_changes = run_kind = longest_run = 0
        word = longest_word = word_latin = word_other = word_look = mixed = 0
        line_start = longest_line = lines = 0
        marks = longest_marks = strays = longest_strays = 0
        encoded_run = encoded_chars = 0
        rtl = sequences = need_1252 = need_1251 = 0
        in_flag = False
        while i < end:
            b = data[i]
            if b < 0x80:
                cp = np.int64(b)
                i += 1
                need_1252 = need_1251 = 0
            else:
                cp, i = decode(data, i)
                # UTF-8 that was read as windows-1252 or -1251: a lead byte, then its continuation bytes.
                if cp < 0x2200:
                    v = byte_1252[cp]
                    if 0x80 <= v < 0xC0:
                        if need_1252 > 0:
                            need_1252 -= 1
                            if need_1252 == 0:
                                sequences += 1
                    else:
                        need_1252 = 0 if v < 0xC2 or v > 0xF4 else (1 if v < 0xE0 else (2 if v < 0xF0 else 3))
                    v = byte_1251[cp]
                    if 0x80 <= v < 0xC0:
                        if need_1251 > 0:
                            need_1251 -= 1
                            if need_1251 == 0:
                                sequences += 1
                    else:
                        need_1251 = 0 if v < 0xC2 or v > 0xF4 else (1 if v < 0xE0 else (2 if v < 0xF0 else 3))
                else:
                    need_1252 = need_1251 = 0
            packed = np.int64(table[cp])
            kind = packed & c.CLASS_MASK
            row[kind] += 1
            chars += 1
            if kind <= c.DIGIT:
                word += 1
                run += 1
                if cp < 0x80:
                    run_alnum += 1
                    if kind != run_kind:
                        if kind != c.LOWER or run_kind != c.UPPER:  # words begin so, and identifiers
                            run_changes += 1
                        run_kind = kind
                if kind != c.DIGIT:
                    this = packed >> c.SCRIPT_SHIFT
                    if this == script:
                        script_n += 1
                    elif this > c.INHERITED:
                        per_script[script] += script_n
                        script, script_n = this, 1
                    if this == c.LATIN:
                        word_latin += 1
                    else:
                        word_other += 1
                        if packed & c.LOOKALIKE_FLAG:
                            word_look += 1
                        if packed & c.RTL_FLAG:
                            rtl += 1
                        if kind == c.MARK:
                            marks += 1
                            longest_marks = max(longest_marks, marks)
                        else:
                            marks = 0
                else:
                    marks = 0
                strays = 0
            else:
                if word > 0:
                    longest_word = max(longest_word, word)
                    if word_look > 0 and word_latin > 0:
                        mixed += 1
                    word = word_latin = word_other = word_look = 0
                marks = 0
                if kind == c.SPACE or kind == c.NEWLINE:
                    if run > longest_run:
                        longest_run = run
                    if run >= ENCODED_MIN:
                        if run_alnum >= ENCODED_ALNUM * run and run_changes >= ENCODED_CHANGES * run:
                            encoded_chars += run
                            encoded_run = max(encoded_run, run)
                    run = run_alnum = run_changes = 0
                    run_kind = c.PUNCT
                    if cp == 0x0A:
                        longest_line = max(longest_line, chars - 1 - line_start)
                        line_start = chars
                        lines += 1
                    strays = 0
                elif kind <= c.SYMBOL:
                    run += 1
                    strays = 0
                    if cp == _BLACK_FLAG:
                        in_flag = True
                else:
                    run += 1
                    stray = False
                    if kind == c.CONTROL:
                        if cp == 0:
                            row[_NUL] += 1
                        elif cp == 0x1B and i < end and data[i] == 0x5B:
                            row[col.ANSI] += 1
                    elif kind == c.ZERO_WIDTH:
                        following = np.int64(table[decode(data, i)[0]]) if i < end else c.SPACE
                        if cp == 0xFEFF and chars == 1:
                            row[col.LEADING_BOM] = 1
                        elif not zero_width_fits(cp, prev, following, joins, unspaced, chars == 1):
                            row[col.STRAY_ZERO_WIDTH] += 1
                            stray = True
                    elif kind == c.BIDI:
                        if cp in (0x202D, 0x202E):
                            row[_OVERRIDES] += 1
                        elif cp not in (0x061C, 0x200E, 0x200F):
                            row[_EMBEDDINGS] += 1
                    elif kind == c.TAG:
                        if not in_flag:
                            row[col.STRAY_TAGS] += 1
                            stray = True
                    elif kind == c.VARIATION:
                        before = prev & c.CLASS_MASK
                        if before in (c.LOWER, c.UPPER, c.SPACE, c.NEWLINE) or before >= c.CONTROL:
                            row[col.STRAY_VARIATION] += 1
                            stray = True
                    if stray:
                        strays += 1
                        longest_strays = max(longest_strays, strays)
                    elif kind != c.FORMAT:
                        strays = 0
                if kind != c.TAG and cp != _BLACK_FLAG:
                    in_flag = False
            prev = packed
        # What the end of the segment closes.
        longest_word = max(longest_word, word)
        if word_look > 0 and word_latin > 0:
            mixed += 1
        longest_run = max(longest_run, run)
        if run >= ENCODED_MIN and run_alnum >= ENCODED_ALNUM * run and run_changes >= ENCODED_CHANGES * run:
            encoded_chars += run
            encoded_run = max(encoded_run, run)
        if chars > line_start:
            longest_line = max(longest_line, chars - line_start)
            lines += 1
        per_script[script] += script_n
        # Japanese is written in three scripts: kana beside Han make it Japanese, not Chinese.
        kana = per_script[c.HIRAGANA] + per_script[c.KATAKANA]
        if kana > 0 and 20 * kana >= per_script[c.HAN]:
            per_script[c.HIRAGANA] = kana + per_script[c.HAN]
            per_script[c.KATAKANA] = per_script[c.HAN] = 0
        best, best_n, letters = c.COMMON, 0, 0
        if script_n < row[c.LOWER] + row[c.UPPER] + row[c.LETTER] + row[c.MARK]:
            for k in range(256):
                n = per_script[k]
                if n > 0:
                    letters += n
                    if n > best_n and k > c.INHERITED:
                        best, best_n = k, n
                    per_script[k] = 0
        else:  # one script from end to end
            best, best_n, letters = script, script_n, script_n
            if best == c.KATAKANA:
                best = c.HIRAGANA
            per_script[c.HIRAGANA] = per_script[c.KATAKANA] = per_script[c.HAN] = per_script[script] = 0
            per_script[c.COMMON] = 0
        row[_CHARS] = chars
        row[_RTL] = rtl
        row[col.LONGEST_STRAY_RUN] = longest_strays
        row[col.LONGEST_MARK_RUN] = longest_marks
        row[col.LONGEST_RUN] = longest_run
        row[col.LONGEST_WORD] = longest_word
        row[col.LONGEST_LINE] = longest_line
        row[col.LINES] = lines
        row[col.SCRIPT] = best
        row[col.SCRIPT_LETTERS] = best_n
        row[col.WORD_LETTERS] = letters
        row[col.MIXED_WORDS] = mixed
        row[col.UTF8_IN_TEXT] = sequences
        row[col.ENCODED_RUN] = encoded_run
        row[col.ENCODED_CHARS] = encoded_chars
