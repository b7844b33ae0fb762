"""Undoes a wrong decoding: ftfy first, then sequence by sequence where spaces took the place of bytes.

Text that was read as Latin-1 or windows-1252 and then had its white space normalised has lost the bytes 0x85
(NEL) and 0xA0 (NBSP): both stand as plain spaces inside what were letters. ftfy gives up on such a line. Here
each sequence is decoded by itself, and a space inside one becomes the byte that makes the more usual letter.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

import ftfy
import ftfy.badness
import numpy as np
from numpy.typing import NDArray

from .contexts import windows_bytes
from .ngram_model import letter_score

_ROUNDS = 4  # misread text may have been misread again
_LOST = (0x85, 0xA0)
_ENOUGH = 3  # whole sequences that show that a text was misread, before spaces are taken for bytes
_MANY = 6  # sequences that tell without ftfy, where they are
_NEARLY_ALL = 0.8  # of the characters beyond ASCII
_PIECE = 1_000_000  # characters that ftfy looks at in one go


@lru_cache(maxsize=8)
def badness(text: str) -> int:
    """The count of sequences that hardly any text but misread text has."""
    throughout = misread_throughout(text)
    if throughout:  # plain enough without ftfy's closer look
        return throughout
    return sum(ftfy.badness.badness(text[i : i + _PIECE]) for i in range(0, len(text), _PIECE))


@lru_cache(maxsize=8)
def misread_throughout(text: str) -> int:
    """Sequences in a text whose characters beyond ASCII are nearly all part of one.

    ftfy knows which sequences stand in no text; scripts of two bytes (Armenian, Hebrew) give others, too.
    """
    if text.isascii():
        return 0
    piece = text[:_PIECE]
    found, characters = _spelt(piece)
    beyond = len(piece) - len(piece.encode("ascii", "ignore"))
    return found if found >= _MANY and characters >= _NEARLY_ALL * beyond else 0


def _spelt(text: str) -> tuple[int, int]:
    """Letters that the characters of a text spell as bytes of UTF-8, and how many characters spell them."""
    whole = _as_bytes(text).decode("utf-8", "ignore")
    n_ascii = len(whole.encode("ascii", "ignore"))
    return len(whole) - n_ascii, len(whole.encode()) - n_ascii


def mend_misread(text: str, *, guess_spaces: bool = True, bad: int | None = None) -> str:
    """The text as it was before it was decoded with the wrong encoding, as far as that can be told.

    Without ``guess_spaces`` sequences that hold a space are left alone (no n-gram table is needed then).
    Each round leaves fewer bad sequences than the one before, until no round does: idempotent. ``bad`` is the
    text's ``badness`` where the caller knows it.
    """
    left = badness(text) if bad is None else bad
    while left:
        mended = _mend_once(text, guess_spaces=guess_spaces)
        now = left_in(mended, of=text)
        if now >= left:
            break
        text, left = mended, now
    return text


def left_in(mended: str, *, of: str) -> int:
    """The bad sequences of a text after its repair.

    Where all of it was misread and no characters are left that spell a letter, there can be none: ftfy's closer
    look, which costs more than the repair, is for the other texts.
    """
    if misread_throughout(of) and _spelt(mended)[0] == 0:
        return 0
    return badness(mended)


def remains(mended: str, *, of: str) -> int:
    """What the repair could not mend: bad sequences, and lead bytes whose other bytes a "?" stands for."""
    return left_in(mended, of=of) + len(_lost().findall(mended))


@cache
def _lead() -> re.Pattern[str]:
    return re.compile("[" + "".join(_classes()[:3]) + "]")


@cache
def _lost() -> re.Pattern[str]:
    return re.compile(f"{_lead().pattern}[?\ufffd]")


def _mend_once(text: str, *, guess_spaces: bool) -> str:
    if misread_throughout(text):  # whole documents: what ftfy would find out line by line is plain here
        decoded = _decode_sequences(text, guess_spaces=guess_spaces)
        if left_in(decoded, of=text) == 0:
            return decoded
    best = _ftfy(text)
    if badness(best) == 0 and _whole_sequences(best) == 0:
        return best
    by_line = "\n".join(_ftfy(line) if badness(line) else line for line in text.split("\n"))
    by_sequence = _ftfy(_decode_sequences(text, guess_spaces=guess_spaces))
    return min((best, by_line, by_sequence), key=lambda t: (badness(t), _whole_sequences(t)))


def _ftfy(text: str) -> str:
    for _ in range(_ROUNDS):
        fixed = ftfy.fix_encoding(text)
        if fixed == text:
            break
        text = fixed
    return text


@cache
def _bytes_of() -> dict[str, int]:
    """The byte of each character in sloppy windows-1252."""
    return {chr(point): int(byte) for point, byte in enumerate(windows_bytes("cp1252")) if byte}


@cache
def _classes() -> tuple[str, ...]:
    """The characters that stand for lead bytes of two, three and four byte letters, and for the bytes behind them."""
    return tuple(
        "".join(re.escape(char) for char, byte in _bytes_of().items() if low <= byte < high)
        for low, high in ((0xC2, 0xE0), (0xE0, 0xF0), (0xF0, 0xF5), (0x80, 0xC0))
    )


@cache
def _sequence() -> re.Pattern[str]:
    """A lead byte and its continuation bytes as characters; a space may stand for one of them."""
    lead2, lead3, lead4, tail = _classes()
    rest = f"[{tail} ]"
    return re.compile(f"[{lead2}]{rest}|[{lead3}]{rest}{{2}}|[{lead4}]{rest}{{3}}")


def _whole_sequences(text: str, most: int = 1000) -> int:
    """Sequences that would be letters if they were decoded again, counted among the first ``most``."""
    return sum(1 for m, _ in zip(_sequence().finditer(text), range(most), strict=False) if " " not in m.group())


def _decode_sequences(text: str, *, guess_spaces: bool) -> str:
    if _whole_sequences(text, 4 * _ENOUGH) < _ENOUGH:
        return text
    if guess_spaces:
        text = _spaced().sub(lambda m: _filled(m.group()), text)
    return _run().sub(lambda m: _letters(m.group()), text)


@cache
def _run() -> re.Pattern[str]:
    """Neighbours that all stand for bytes, ASCII among them: mostly whole texts."""
    beyond = "".join(re.escape(char) for char, byte in _bytes_of().items() if byte > 0x7F)  # noqa: PLR2004
    return re.compile(f"[\\x00-\\x7f{beyond}]+")


@cache
def _spaced() -> re.Pattern[str]:
    """Sequences in which a space stands for a byte: looked for behind a lead byte only."""
    lead2, lead3, lead4, tail = _classes()
    three = f"[{lead3}](?: [{tail} ]|[{tail}] )"
    four = f"[{lead4}](?=[{tail}]{{0,2}} )[{tail} ]{{3}}"
    return re.compile(f"[{lead2}] |{three}|{four}")


@cache
def _table() -> NDArray[np.uint8]:
    """Shape (0x2201,): the byte of a code point in sloppy windows-1252; of the last, and of those without one, "?"."""
    table = np.append(windows_bytes("cp1252"), np.uint8(0))
    table[:0x80] = np.arange(0x80)
    table[0x80:][table[0x80:] == 0] = ord("?")
    return table


def _as_bytes(text: str) -> bytes:
    """One byte for each character, "?" for those that stand for none."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    table = _table()
    return table[np.minimum(points, len(table) - 1)].tobytes()


def _letters(run: str) -> str:
    """What the bytes of a run spell; those that spell nothing stay the characters they were."""
    if run.isascii():
        return run
    pieces, at = [], 0
    for piece in _ESCAPED.split(_as_bytes(run).decode("utf-8", "surrogateescape")):
        size = len(piece.encode("utf-8", "surrogateescape"))
        pieces.append(run[at] if _ESCAPED.match(piece) else piece)
        at += size
    return "".join(pieces)


_ESCAPED = re.compile("([\udc80-\udcff])")


@lru_cache(maxsize=4096)
def _filled(found: str) -> str:
    """The sequence with the byte in place of the space that makes the more usual letter."""
    tries = [found.replace(" ", chr(byte)) for byte in _LOST]
    whole = [(letter, attempt) for attempt in tries if len(letter := _decoded(attempt)) == 1]
    return min(whole, key=lambda pair: letter_score(pair[0]))[1] if whole else found


def _decoded(found: str) -> str:
    """The letter that a sequence without spaces stands for; the sequence itself where it is none."""
    try:
        return bytes(map(_bytes_of().__getitem__, found)).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return found
