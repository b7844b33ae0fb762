"""From token hashes back to what stands in the text, for the few tokens that are shown."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cleanse.corpus.samples import load
from cleanse.corpus.shards import Shards
from cleanse.safe_text import escape

_SPACE = 0x20


class Words:
    """How tokens are written, looked up in the vocabularies of all shards at once."""

    def __init__(self, shards: Shards, hashes: Iterable[int], exchanges: Iterable[int] = ()) -> None:
        """Knows the tokens given, and those of the prompts and answers of ``exchanges``."""
        self._loaded = load(shards, np.unique(np.array(list(exchanges), np.int64)))
        wanted = {int(h) for h in hashes}
        for exchange in self._loaded.values():
            wanted.update(exchange.prompt.tolist())
            wanted.update(exchange.answer.tolist())
        self._texts: dict[int, str] = {}
        array = np.array(sorted(wanted), np.uint64)
        for shard in shards:
            known = shard.arrays["vocabulary_hash"]
            offsets, text = shard.arrays["vocabulary_offsets"], shard.arrays["vocabulary_text"]
            for k in np.flatnonzero(np.isin(known, array)).tolist():
                word = text[offsets[k] : offsets[k + 1]].tobytes().decode("utf-8", "replace")
                self._texts.setdefault(int(known[k]), word)

    def phrase(self, hashes: Iterable[int]) -> str:
        """The tokens with a space between them, escaped: the text itself had other white space, perhaps none."""
        return escape(" ".join(self._texts.get(int(h), "?") for h in hashes)).strip()

    def prompt(self, exchange: int, limit: int = 40) -> str:
        """The first tokens of a prompt."""
        return self.phrase(self._loaded[exchange].prompt[:limit].tolist())

    def answer(self, exchange: int, limit: int = 24) -> str:
        """The first and last tokens of an answer."""
        tokens = self._loaded[exchange].answer.tolist()
        if len(tokens) <= limit:
            return self.phrase(tokens)
        return f"{self.phrase(tokens[: limit // 2])} ... {self.phrase(tokens[-limit // 2 :])}"
