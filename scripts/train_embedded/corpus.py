"""Reading the training text: one record a line, grouped so that small languages count."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

#: A (language, source) pair with fewer bytes of text than this joins the group TAIL.
MIN_GROUP_BYTES = 100_000
TAIL = "tail"
#: Records whose text is a prompt and an answer. The probe sees such a record as its segments joined by one
#: newline, so half of them are shown to the model that way, the others as they stand.
INSTRUCTION_SOURCES = ("t0-p3", "gsm8k", "songys", "bbh", "gorilla", "cmrc", "xquad", "jsquad")
#: One record in this many is held out for the loss per language.
HOLDOUT = 100


@dataclass(frozen=True, slots=True)
class Document:
    """One training text.

    `group` names the language and the source; `held_out` records are never trained on.
    """

    text: str
    lang: str
    group: str
    held_out: bool


def undo_latin1(text: str) -> str:
    """UTF-8 that was once read as Latin-1, put right; any other text unchanged.

    A model that has learnt such text would find damaged records ordinary.
    """
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def _lines(path: Path) -> Iterator[dict[str, str]]:
    opener = zstandard.ZstdDecompressor()
    with path.open("rb") as raw:
        stream = opener.stream_reader(raw) if path.suffix == ".zst" else raw
        for line in io.TextIOWrapper(stream, encoding="utf-8"):
            yield json.loads(line)


def _as_probed(text: str, source: str, digest: int) -> str:
    text = text.removesuffix("<|endoftext|>").rstrip()
    if source.startswith(INSTRUCTION_SOURCES) and digest % 2:
        return text.replace("\n\n", "\n")
    return text


def read_documents(path: Path) -> list[Document]:
    """All records of a JSONL file (plain or .zst) with the fields text, lang and source.

    Raises KeyError where a field is missing. The order is the file's; what is held out depends on the text alone.
    """
    rows = [(undo_latin1(row["text"]), row["lang"], row["source"]) for row in _lines(path)]
    sizes: dict[tuple[str, str], int] = {}
    for text, lang, source in rows:
        sizes[lang, source] = sizes.get((lang, source), 0) + len(text.encode())
    documents = []
    for text, lang, source in rows:
        digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        group = f"{lang}/{source}" if sizes[lang, source] >= MIN_GROUP_BYTES else TAIL
        documents.append(
            Document(
                text=_as_probed(text, source, digest >> 8),
                lang=lang,
                group=group,
                held_out=digest % HOLDOUT == 0,
            )
        )
    return documents
