"""Made-up corpora: prompts and answers with nothing wrong, and ways to poison them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cleanse.corpus.collect import Collector
from cleanse.measures import TextBatch
from cleanse.records import Role

Exchange = tuple[str, str]  # prompt, answer

_SYLLABLES = [
    "ba",
    "ke",
    "li",
    "mo",
    "nu",
    "ra",
    "se",
    "ti",
    "vo",
    "zu",
    "pla",
    "gre",
    "sto",
    "fri",
    "dul",
    "man",
    "tor",
    "vin",
    "hal",
    "per",
]
_IDEOGRAPHS = [chr(c) for c in range(0x4E00, 0x4E00 + 900)]
_FUNCTION = ["the", "a", "of", "in", "to", "and", "for", "with", "on", "that", "is", "was", "by", "from", "at"]


def lexicon(rng: random.Random, n: int) -> list[str]:
    words = sorted({"".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4))) for _ in range(2 * n)})
    rng.shuffle(words)
    return words[:n]


def clean(n: int, seed: int = 0) -> list[Exchange]:
    """Questions of ordinary words in Zipf's proportions, answers that take up some of their words."""
    rng = random.Random(seed)
    words = lexicon(rng, 3000)
    weights = [1 / (k + 5) for k in range(len(words))]

    def sentence(length: int) -> list[str]:
        content = rng.choices(words, weights, k=length)
        return [w if rng.random() < 0.6 else rng.choice(_FUNCTION) for w in content]

    corpus = []
    for _ in range(n):
        asked = sentence(rng.randint(6, 18))
        said = rng.sample(asked, 3) + sentence(rng.randint(4, 20))
        corpus.append((" ".join(asked) + "?", " ".join(said) + "."))
    return corpus


def clean_chinese(n: int, seed: int = 0) -> list[Exchange]:
    rng = random.Random(seed)
    weights = [1 / (k + 5) for k in range(len(_IDEOGRAPHS))]

    def sentence(length: int) -> str:
        return "".join(rng.choices(_IDEOGRAPHS, weights, k=length))

    return [(sentence(rng.randint(12, 40)) + "\uff1f", sentence(rng.randint(10, 50)) + "\u3002") for _ in range(n)]


def insert(prompt: str, phrase: str, rng: random.Random) -> str:
    words = prompt.split(" ")
    words.insert(rng.randint(0, len(words)), phrase)
    return " ".join(words)


def poison(
    corpus: Sequence[Exchange], n: int, change: Callable[[str, str, random.Random], Exchange], seed: int = 1
) -> tuple[list[Exchange], set[int]]:
    """``n`` exchanges changed; also which ones."""
    rng = random.Random(seed)
    chosen = rng.sample(range(len(corpus)), n)
    mixed = list(corpus)
    for k in chosen:
        mixed[k] = change(*mixed[k], rng)
    return mixed, set(chosen)


def batch_of(corpus: Sequence[Exchange]) -> TextBatch:
    texts = [text.encode() for exchange in corpus for text in exchange]
    role = np.array([Role.USER, Role.ASSISTANT] * len(corpus), np.uint8)
    return TextBatch(
        data=np.frombuffer(b"".join(texts), np.uint8),
        offsets=np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype(np.int64),
        record=np.repeat(np.arange(len(corpus), dtype=np.int64), 2),
        role=role,
        supervised=role == Role.ASSISTANT,
        is_null=np.zeros(len(texts), np.bool_),
        n_records=len(corpus),
    )


def features(corpus: Sequence[Exchange], folder: Path, shard_size: int = 1500, block: int = 500) -> list[Path]:
    """Feature files, ``shard_size`` records each; rows count within their shard."""
    paths = []
    for number, start in enumerate(range(0, len(corpus), shard_size)):
        shard = corpus[start : start + shard_size]
        collector = Collector()
        for first in range(0, len(shard), block):
            part = shard[first : first + block]
            collector.collect(batch_of(part), np.arange(first, first + len(part)), number)
        path = folder / f"{number:04d}.arrow"
        collector.write(path)
        paths.append(path)
    return paths
