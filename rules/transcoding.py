"""Text that was read in another encoding of its region: UTF-8 as GBK, EUC-KR as Latin-1, windows-1251 as Latin-1.

ftfy does not look for these. The n-gram table does: such text is most surprising, and what its bytes say in
the right encoding is not. The repair is taken only when it is exact and the surprise is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .contexts import windows_bytes
from .ngram_model import mean_surprisal

READ_AS = ("gb18030", "cp932", "cp949", "big5")  # encodings in which UTF-8 was read
LEGACY = ("cp949", "gb18030", "cp932", "big5", "cp1251", "koi8-r", "cp1253", "cp1255", "cp1256", "cp874")

SUSPICIOUS = 4.5  # nats per character from which other encodings are tried: no language gets there in a whole text
GAIN = 0.65  # the surprise that may be left
NATURAL = 7.0  # nats per character that the decoded text may have
LOST = 0.35  # replacement characters that a text may have and still be recognised
_FEWEST = 3  # letters beyond ASCII that the text read again must have
_TRIED = 4000  # characters on which the encodings are tried


@dataclass(frozen=True)
class Transcoding:
    """How a text was misread: encode with ``wrong``, decode with ``right``; ``exact`` when nothing is lost."""

    wrong: str
    right: str
    exact: bool


@lru_cache(maxsize=256)
def find_transcoding(text: str) -> Transcoding | None:
    """The misreading that explains the text, or None."""
    if text.isascii():
        return None
    sample = text[:_TRIED]
    before = mean_surprisal(sample)
    if not before >= SUSPICIOUS:
        return None
    found: list[tuple[float, Transcoding]] = []
    for wrong, right in (*((w, "utf-8") for w in READ_AS), *(("latin-1", r) for r in LEGACY)):
        decoded, lost = _decoded(sample, wrong, right)
        if decoded is None or decoded == sample or lost > LOST or (wrong == "latin-1" and lost):
            continue
        after = mean_surprisal(decoded.replace("\ufffd", ""))
        if after <= GAIN * before and after <= NATURAL:
            found.append((after + lost, Transcoding(wrong, right, lost == 0)))
    return min(found, key=lambda f: f[0])[1] if found else None


def transcode(text: str) -> str:
    """The text in the encoding it was written in, where another reading was found and nothing was lost."""
    found = find_transcoding(text)
    if found is None or not found.exact:
        return text
    decoded, lost = _decoded(text, found.wrong, found.right)
    return text if decoded is None or lost else decoded


def _decoded(text: str, wrong: str, right: str) -> tuple[str | None, float]:
    """The text read again, and the share of it that could not be."""
    text = text.replace("\ufffd", "?")
    try:
        raw = _latin_bytes(text) if wrong == "latin-1" else text.encode(wrong)
    except UnicodeEncodeError:
        return None, 1.0
    if raw is None:
        return None, 1.0
    decoded = raw.decode(right, "replace")
    foreign = len(decoded) - len(decoded.encode("ascii", "ignore"))
    if foreign < _FEWEST or (right == "utf-8" and len(decoded) >= len(text)):
        return None, 1.0
    lost = decoded.count("\ufffd")
    lost -= len(text) == _TRIED  # the cut may go through a letter
    return decoded, max(0, lost) / foreign


def _latin_bytes(text: str) -> bytes | None:
    """The bytes of a text in Latin-1 or windows-1252, or None where it has other characters."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    table = windows_bytes("cp1252")
    if points.max(initial=0) >= len(table):
        return None
    found = np.where(points < 0x80, points, table[points]).astype(np.uint8)  # noqa: PLR2004 - ASCII
    return found.tobytes() if not ((found == 0) & (points != 0)).any() else None
