"""A small corpus with known damage, made here."""

from __future__ import annotations

import json
import random
from pathlib import Path

WORDS = (
    "river",
    "mill",
    "boat",
    "bread",
    "market",
    "spring",
    "street",
    "child",
    "bridge",
    "summer",
    "garden",
    "window",
)
BAD_UTF8 = b'{"id": 900001, "instruction": "Say it.", "input": "", "output": "It\x92s foo"}'
SURROGATE = b'{"id": 900002, "instruction": "Smile.", "input": "", "output": "smile \\ud83d end"}'
BIDI = '{"id": 900003, "instruction": "Read it.", "input": "", "output": "a \u202egnirts\u202c b"}'.encode()
ZERO_WIDTH = (
    '{ "id": 900004, "instruction": "Write plain text.", "input": "", "output": "plain\u200b tex\u200bt here" }'
).encode()
MIXED = b'{"id": "five", "instruction": "Count to five for me.", "input": "", "output": "One two three four five."}'
EMPTY = b'{"id": 900006, "instruction": "Answer me.", "input": "", "output": ""}'
KINDS = {
    "utf8": BAD_UTF8,
    "surrogate": SURROGATE,
    "bidi": BIDI,
    "zero_width": ZERO_WIDTH,
    "mixed": MIXED,
    "empty": EMPTY,
}
HELD = {"utf8", "surrogate", "bidi", "empty"}


def sentence(chance: random.Random) -> str:
    words = chance.sample(WORDS, 9)
    return " ".join([words[0].capitalize(), *words[1:]]) + "."


def lines(n: int, seed: int = 0, every: int = 40) -> tuple[list[bytes], dict[int, str]]:
    """``n`` JSON lines (some blank), and the kind of each damaged one by row."""
    chance = random.Random(seed)
    made: list[bytes] = []
    kinds: dict[int, str] = {}
    for row in range(n):
        if row and row % 97 == 0:
            made.append(b"")
        elif row % every == every - 1:
            kind = list(KINDS)[(row // every) % len(KINDS)]
            made.append(KINDS[kind])
            kinds[row] = kind
        else:
            record = {
                "id": row,
                "instruction": f"Tell me about {sentence(chance)}",
                "input": "",
                "output": sentence(chance),
            }
            if row % 7 == 0:
                record["note"] = None
            if row > n // 2 and row % 5 == 0:
                record["late"] = [row, row + 1]
            made.append(json.dumps(record, ensure_ascii=row % 2 == 0).encode())
    return made, kinds


def write(path: Path, n: int, seed: int = 0) -> dict[int, str]:
    made, kinds = lines(n, seed)
    path.write_bytes(b"\n".join(made) + b"\n")
    return kinds
