"""The rows that the profile kernel fills: one int64 row each, one entry per segment."""

from __future__ import annotations

from .classes import N_CLASSES

# Rows 0 to N_CLASSES - 1: number of characters of each class.
CHARS = N_CLASSES
NUL = CHARS + 1
RTL_LETTERS = CHARS + 2
BIDI_OVERRIDES = CHARS + 3
BIDI_EMBEDDINGS = CHARS + 4
STRAY_ZERO_WIDTH = CHARS + 5  # zero-width characters that their neighbours do not explain
STRAY_TAGS = CHARS + 6  # tag characters outside a flag emoji
STRAY_VARIATION = CHARS + 7  # variation selectors after nothing that varies
LEADING_BOM = CHARS + 8
LONGEST_STRAY_RUN = CHARS + 9  # stray invisible characters in a row
LONGEST_MARK_RUN = CHARS + 10
LONGEST_RUN = CHARS + 11  # characters without white space
LONGEST_WORD = CHARS + 12  # letters, marks and digits in a row
LONGEST_LINE = CHARS + 13
LINES = CHARS + 14
SCRIPT = CHARS + 15  # number of the dominant script (Hiragana stands for Japanese)
SCRIPT_LETTERS = CHARS + 16  # letters and marks of that script
WORD_LETTERS = CHARS + 17  # letters and marks of any script
MIXED_WORDS = CHARS + 18  # words that mix Latin with Cyrillic or Greek look-alikes
UTF8_IN_TEXT = CHARS + 19  # character sequences whose windows-1252 or -1251 bytes are valid UTF-8
ENCODED_RUN = CHARS + 20  # longest run that changes between a-z, A-Z and 0-9 like base64 or hex
ENCODED_CHARS = CHARS + 21  # characters in all such runs
ANSI = CHARS + 22  # ESC [ sequences
SCREEN = CHARS + 23  # worst mean of 64 ASCII pairs, in hundredths of an eighth of a nat
N_COLUMNS = CHARS + 24
