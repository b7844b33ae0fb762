"""One decode of the UTF-8 buffer, and every character counter of a segment from it.

The branches are ordered by how often real text takes them: word characters, spaces and punctuation first,
odd characters last. All loops are linear in the bytes; nothing is allocated per segment. Indices are cast to
unsigned where it is hot: numba tests signed ones for being negative.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from . import classes as c
from . import profile_columns as col

# A run is taken for encoded data (base64, hex, tokens) when it is this long, nearly all ASCII letters and
# digits, and its neighbours differ in kind (a-z, A-Z, 0-9) this often; a capital before a small letter does not
# count, since words begin so. Random base64 changes at 48 % of its characters, hex at 47 %, base32 at 30 %;
# identifiers, URLs and chains of them stay under 23 %.
ENCODED_MIN = 48
ENCODED_CHANGES = 0.25
ENCODED_ALNUM = 0.9

SCREEN = 64  # ASCII characters over which the quick screen for noise takes its mean

_BLACK_FLAG = 0x1F3F4


@njit(cache=True, nogil=True, inline="always")
def decode(data: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """Code point at byte ``i`` of valid UTF-8, and where the next one starts."""
    b = np.int64(data[np.uint64(i)])
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
        return bool(cp == 0x200D and from_emoji and next_script == c.EMOJI)
    if cp == 0x200B:
        return bool(unspaced[prev_script] or unspaced[next_script])
    if cp == 0xFEFF:
        return first  # a byte order mark, counted by itself
    if cp == 0x034F:  # combining grapheme joiner: between marks, or to keep two letters apart when sorting
        return c.MARK in (prev_class, next_class)
    if cp in (0x115F, 0x1160, 0x3164, 0xFFA0):  # Hangul fillers: beside Hangul letters
        prev_fits = prev_class == c.LETTER and prev_script == c.HANGUL
        return prev_fits or (next_class == c.LETTER and next_script == c.HANGUL)
    if cp in (0x17B4, 0x17B5, 0x180E):
        return bool(joins[prev_script])
    if 0x2061 <= cp <= 0x2064:  # invisible operators of mathematics
        return prev_class <= c.SYMBOL and prev_class != c.MARK
    return False


@njit(cache=True, nogil=True, inline="always")
def _is_encoded(run: int, alnum: int, changes: int) -> bool:
    return alnum >= ENCODED_ALNUM * run and changes >= ENCODED_CHANGES * run


@njit(cache=True, nogil=True)
def profile(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    table: NDArray[np.uint16],  # (0x110000,) from classes.character_table
    joins: NDArray[np.bool_],  # (scripts,) where ZWJ and ZWNJ are ordinary
    unspaced: NDArray[np.bool_],  # (scripts,) where ZWSP is ordinary
    byte_1252: NDArray[np.uint8],  # (0x2200,) windows-1252 byte of a code point, 0 for none
    byte_1251: NDArray[np.uint8],  # (0x2200,) the same for windows-1251
    pairs: NDArray[np.uint8],  # (128 * 128,) surprisal of the second ASCII character of a pair, from ngram_model
    out: NDArray[np.int64],  # (N_COLUMNS, segments), zeros
) -> None:
    """Fills one column of ``out`` per segment. ``data`` must be valid UTF-8 cut at segment borders."""
    per_script = np.zeros(256, np.int64)
    counts = np.zeros(col.N_COLUMNS, np.int64)
    for s in range(len(offsets) - 1):
        i, end = offsets[s], offsets[s + 1]
        chars = lower = spaces = 0
        prev = np.int64(c.SPACE)  # packed class and script of the character before
        script, script_n = np.int64(c.COMMON), 0  # letters of one script in a row, not yet added up
        run_start = run_alnum = run_changes = longest_run = 0
        run_kind = np.int64(c.PUNCT)
        word = longest_word = word_latin = word_look = mixed = 0
        line_start = longest_line = lines = 0
        marks = longest_marks = strays = longest_strays = 0
        encoded_run = encoded_chars = 0
        rtl = sequences = cyrillic = need_1252 = need_1251 = 0
        last = np.int64(32)
        screen = in_screen = 0
        worst = 0.0
        in_flag = False
        before = np.int64(0)  # the last character beyond ASCII, while no ASCII came after it
        while i < end:
            b = np.int64(data[np.uint64(i)])
            if 97 <= b <= 122:  # most of most text: small Latin letters, a word at a time
                start = i
                stop = min(end, i + SCREEN)
                while i < stop:
                    b = np.int64(data[np.uint64(i)])
                    if b < 97 or b > 122:
                        break
                    screen += pairs[np.uint64((last << 7) | b)]
                    last = b
                    i += 1
                n = i - start
                chars += n
                lower += n
                word += n
                word_latin += n
                run_alnum += n
                if run_kind != c.LOWER:
                    if run_kind != c.UPPER:
                        run_changes += 1
                    run_kind = np.int64(c.LOWER)
                if script == c.LATIN:
                    script_n += n
                else:
                    per_script[script] += script_n
                    script, script_n = np.int64(c.LATIN), n
                marks = strays = need_1252 = need_1251 = 0
                before = np.int64(0)
                prev = np.int64(c.LOWER | (c.LATIN << c.SCRIPT_SHIFT))
                in_screen += n
                if in_screen >= SCREEN:
                    worst = max(worst, screen / in_screen)
                    screen = in_screen = 0
                continue
            if b == 32:
                screen += pairs[np.uint64((last << 7) | b)]
                last = b
                i += 1
                if word > 0:
                    longest_word = max(longest_word, word)
                    if word_look > 0 and word_latin > 0:
                        mixed += 1
                    word = word_latin = word_look = 0
                run = chars - run_start
                longest_run = max(longest_run, run)
                if run >= ENCODED_MIN and _is_encoded(run, run_alnum, run_changes):
                    encoded_chars += run
                    encoded_run = max(encoded_run, run)
                chars += 1
                spaces += 1
                run_start = chars
                run_alnum = run_changes = marks = strays = need_1252 = need_1251 = 0
                before = np.int64(0)
                run_kind = np.int64(c.PUNCT)
                prev = np.int64(c.SPACE)
                in_flag = False
                in_screen += 1
                continue
            if b < 0x80:
                cp = b
                i += 1
                need_1252 = need_1251 = 0
                before = np.int64(0)
                screen += pairs[np.uint64((last << 7) | b)]
                last = b
                in_screen += 1
            else:
                cp, i = decode(data, i)
                last = np.int64(32)
                # UTF-8 that was read as Mac Roman: a root sign or a low quotation mark, then another odd sign.
                if (before == 0x221A and cp < 0x2123) or (before == 0x201A and cp == 0xC4):
                    sequences += 1
                before = cp
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
                                cyrillic += 1
                    else:
                        need_1251 = 0 if v < 0xC2 or v > 0xF4 else (1 if v < 0xE0 else (2 if v < 0xF0 else 3))
                else:
                    need_1252 = need_1251 = 0
            packed = np.int64(table[np.uint64(cp)])
            kind = packed & c.CLASS_MASK
            chars += 1
            if kind <= c.DIGIT:
                counts[np.uint64(kind)] += 1
                word += 1
                if cp < 0x80:
                    run_alnum += 1
                    if kind != run_kind:
                        if kind != c.LOWER or run_kind != c.UPPER:  # words begin so, and identifiers
                            run_changes += 1
                        run_kind = kind
                marks = marks + 1 if kind == c.MARK else 0
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
                        if packed & c.LOOKALIKE_FLAG:
                            word_look += 1
                        if packed & c.RTL_FLAG:
                            rtl += 1
                        longest_marks = max(longest_marks, marks)
                strays = 0
            else:
                if word > 0:
                    longest_word = max(longest_word, word)
                    if word_look > 0 and word_latin > 0:
                        mixed += 1
                    word = word_latin = word_look = 0
                marks = 0
                if kind in (c.SPACE, c.NEWLINE):
                    spaces += 1
                    run = chars - 1 - run_start
                    longest_run = max(longest_run, run)
                    if run >= ENCODED_MIN and _is_encoded(run, run_alnum, run_changes):
                        encoded_chars += run
                        encoded_run = max(encoded_run, run)
                    run_start = chars
                    run_alnum = run_changes = 0
                    run_kind = np.int64(c.PUNCT)
                    strays = 0
                    if kind == c.NEWLINE:
                        counts[c.NEWLINE] += 1
                        if cp == 0x0A:
                            longest_line = max(longest_line, chars - 1 - line_start)
                            line_start = chars
                            lines += 1
                    if in_screen >= SCREEN:
                        worst = max(worst, screen / in_screen)
                        screen = in_screen = 0
                elif kind <= c.SYMBOL:
                    counts[np.uint64(kind)] += 1
                    strays = 0
                    if cp == _BLACK_FLAG:
                        in_flag = True
                else:
                    counts[np.uint64(kind)] += 1
                    stray = False
                    if kind == c.CONTROL:
                        if cp == 0:
                            counts[col.NUL] += 1
                        elif cp == 0x1B and i < end and data[i] == 0x5B:
                            counts[col.ANSI] += 1
                    elif kind == c.ZERO_WIDTH:
                        following = np.int64(table[decode(data, i)[0]]) if i < end else np.int64(c.SPACE)
                        if cp == 0xFEFF and chars == 1:
                            counts[col.LEADING_BOM] = 1
                        elif not zero_width_fits(cp, prev, following, joins, unspaced, chars == 1):
                            counts[col.STRAY_ZERO_WIDTH] += 1
                            stray = True
                    elif kind == c.BIDI:
                        if cp in (0x202D, 0x202E):
                            counts[col.BIDI_OVERRIDES] += 1
                        elif cp not in (0x061C, 0x200E, 0x200F):
                            counts[col.BIDI_EMBEDDINGS] += 1
                    elif kind == c.TAG:
                        if not in_flag:
                            counts[col.STRAY_TAGS] += 1
                            stray = True
                    elif kind == c.VARIATION:
                        held = prev & c.CLASS_MASK
                        if held in (c.LOWER, c.UPPER, c.SPACE, c.NEWLINE) or held >= c.CONTROL:
                            counts[col.STRAY_VARIATION] += 1
                            stray = True
                    if stray:
                        strays += 1
                        longest_strays = max(longest_strays, strays)
                    elif kind != c.FORMAT:
                        strays = 0
                if in_flag and kind != c.TAG and cp != _BLACK_FLAG:
                    in_flag = False
            prev = packed
        # What the end of the segment closes.
        longest_word = max(longest_word, word)
        if word_look > 0 and word_latin > 0:
            mixed += 1
        run = chars - run_start
        longest_run = max(longest_run, run)
        if run >= ENCODED_MIN and _is_encoded(run, run_alnum, run_changes):
            encoded_chars += run
            encoded_run = max(encoded_run, run)
        if chars > line_start:
            longest_line = max(longest_line, chars - line_start)
            lines += 1
        if in_screen >= SCREEN // 2:
            worst = max(worst, screen / in_screen)
        counts[c.LOWER] += lower
        counts[c.SPACE] = spaces - counts[c.NEWLINE]
        per_script[script] += script_n
        # Japanese is written in three scripts: kana beside Han make it Japanese, not Chinese.
        kana = per_script[c.HIRAGANA] + per_script[c.KATAKANA]
        if kana > 0 and 20 * kana >= per_script[c.HAN]:
            per_script[c.HIRAGANA] = kana + per_script[c.HAN]
            per_script[c.KATAKANA] = per_script[c.HAN] = 0
        best, best_n, letters = np.int64(c.COMMON), 0, 0
        every = counts[c.LOWER] + counts[c.UPPER] + counts[c.LETTER] + counts[c.MARK]
        if per_script[script] == every:  # one script, as in most texts
            best, best_n, letters = script, every, every
            per_script[script] = per_script[c.COMMON] = 0
        else:
            for k in range(256):
                n = per_script[k]
                if n > 0:
                    letters += n
                    if n > best_n and k > c.INHERITED:
                        best, best_n = np.int64(k), n
                    per_script[k] = 0
        counts[col.CHARS] = chars
        counts[col.RTL_LETTERS] = rtl
        counts[col.LONGEST_STRAY_RUN] = longest_strays
        counts[col.LONGEST_MARK_RUN] = longest_marks
        counts[col.LONGEST_RUN] = longest_run
        counts[col.LONGEST_WORD] = longest_word
        counts[col.LONGEST_LINE] = longest_line
        counts[col.LINES] = lines
        counts[col.SCRIPT] = best
        counts[col.SCRIPT_LETTERS] = best_n
        counts[col.WORD_LETTERS] = letters
        counts[col.MIXED_WORDS] = mixed
        # In Cyrillic, a quotation mark after a capital makes such a sequence by chance; misread, all letters do.
        counts[col.UTF8_IN_TEXT] = sequences + (cyrillic if 8 * cyrillic >= letters else 0)
        counts[col.ENCODED_RUN] = encoded_run
        counts[col.ENCODED_CHARS] = encoded_chars
        counts[col.SCREEN] = np.int64(100 * worst)
        for k in range(col.N_COLUMNS):  # most are zero in most segments
            n = counts[k]
            if n != 0:
                out[k, s] = n
                counts[k] = 0
