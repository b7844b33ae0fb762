"""A tokenizer with all that a trainer takes from its folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import orjson
from tokenizers import Tokenizer

from cleanse.tokenizers_io.families import family_of


class TokenizerError(ValueError):
    """No tokenizer could be loaded; the message says what was tried and what to give instead."""


@dataclass(frozen=True)
class LoadedTokenizer:
    """A ``tokenizers.Tokenizer`` beside its special tokens and chat templates.

    ``named`` maps bos_token, eos_token, unk_token, pad_token and the like to their strings: what a chat template
    sees. ``templates`` maps a template's name ("default", "tool_use") to its source.
    """

    tokenizer: Tokenizer
    source: str  # as the user gave it
    named: dict[str, str] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
    model_max_length: int | None = None

    @cached_property
    def special(self) -> dict[str, int]:
        """Every control string and its id: added tokens marked special, and the named ones."""
        found = {token.content: i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}
        for text in self.named.values():
            number = self.tokenizer.token_to_id(text)
            if number is not None:
                found[text] = number
        return found

    @cached_property
    def vocab_size(self) -> int:
        """Ids the tokenizer can give: the highest one plus 1, added tokens included."""
        return max(self.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def family(self) -> str:
        """The model family by its control tokens ("qwen", "llama3"), or ""."""
        return family_of(self.tokenizer.get_vocab(with_added_tokens=True))

    @cached_property
    def description(self) -> Mapping[str, Any]:
        """The tokenizer as its ``tokenizer.json`` says it: not to be changed by those who read it."""
        return MappingProxyType(orjson.loads(self.tokenizer.to_str()))

    @cached_property
    def pieces(self) -> Pieces:
        """Which ids stand for single bytes or for nothing known."""
        return Pieces.of(self.description)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) of everything that can change an id or a rendered template."""
        parts = [dict(self.description), self.named, self.templates, self.model_max_length]
        return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()

    def id_of(self, name: str) -> int | None:
        """The id of a named special token ("eos_token"), or None."""
        text = self.named.get(name)
        return None if text is None else self.tokenizer.token_to_id(text)

    def template(self, *, tools: bool = False) -> str | None:
        """The chat template transformers would take, or None where the tokenizer has none."""
        if tools and "tool_use" in self.templates:
            return self.templates["tool_use"]
        return self.templates.get("default")


@dataclass(frozen=True)
class Pieces:
    """How a vocabulary writes what it has no word for.

    ``bytes`` are the ids that stand for one byte of a longer character: byte-fallback pieces (``<0xE4>``), or
    single bytes above 127 of a byte-level vocabulary. ``lossless`` says that no text is changed or lost on the
    way: byte-level without a normaliser.
    """

    bytes: frozenset[int]
    unk: int | None
    lossless: bool

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Pieces:
        """The pieces of a tokenizer, from its own description."""
        model = state.get("model") or {}
        vocabulary = model.get("vocab") or {}
        if isinstance(vocabulary, list):  # unigram: (piece, score) by id
            vocabulary = {piece: i for i, (piece, _) in enumerate(vocabulary)}
        byte_level = "ByteLevel" in orjson.dumps(state.get("pre_tokenizer")).decode()
        if byte_level:
            found = frozenset(i for piece, i in vocabulary.items() if len(piece) == 1 and _is_high_byte(piece))
        else:
            found = frozenset(number for b in range(256) if (number := vocabulary.get(f"<0x{b:02X}>")) is not None)
        unk = model.get("unk_token")
        number = model.get("unk_id") if unk is None else vocabulary.get(unk)
        normalizer = state.get("normalizer") or {}
        plain = not normalizer or normalizer.get("normalizers") == []
        return cls(found, number, byte_level and plain)


def _is_high_byte(piece: str) -> bool:
    """Whether a byte-level piece of one character stands for a byte above 127 (GPT-2's byte alphabet)."""
    code = ord(piece)
    return 0xA1 <= code <= 0xFF or 0x122 <= code <= 0x143  # noqa: PLR2004 - 0x7F..0xA0 and 0xAD are shifted
