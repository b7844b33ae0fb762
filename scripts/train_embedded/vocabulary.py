"""The tokenizer: byte-level BPE, so that no byte string is without tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .corpus import Document

VOCABULARY = 8192
#: Ids 0 and 1, in this order. EOS also stands before every record: it is the first thing the model reads.
PAD, EOS = "<|cleanse:pad|>", "<|cleanse:eos|>"
PAD_ID, EOS_ID = 0, 1
#: Words keep their combining marks (Thai, Devanagari vowels), digits stand alone, line ends keep to themselves.
#: The bound on a word keeps scripts without spaces from becoming one endless word.
SPLIT = (
    r"'(?i:[sdmt]|ll|ve|re)(?![\p{L}\p{M}])"
    r"| ?[\p{L}\p{M}]{1,24}"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]{1,16}"
    r"|[\r\n]+"
    r"|[^\S\r\n]+(?![^\s])"
    r"|[^\S\r\n]{1,16}"
)
#: Characters of text the merges are learnt from; more changes them little.
SAMPLE_CHARS = 24_000_000


def empty_tokenizer() -> Tokenizer:
    """The tokenizer without merges: 256 byte symbols and the pre-tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sample_texts(documents: Sequence[Document], exponent: float, seed: int) -> Iterator[str]:
    """Texts whose groups stand in proportion to (characters of the group) ** exponent."""
    chars: dict[str, int] = {}
    for doc in documents:
        chars[doc.group] = chars.get(doc.group, 0) + len(doc.text)
    weights = {group: n**exponent for group, n in chars.items()}
    total = sum(weights.values())
    quota = {group: SAMPLE_CHARS * weight / total for group, weight in weights.items()}
    order = list(documents)
    random.Random(seed).shuffle(order)
    for doc in order:
        if not doc.held_out and quota[doc.group] > 0:
            quota[doc.group] -= len(doc.text)
            yield doc.text


def train_tokenizer(documents: Sequence[Document], exponent: float = 0.7, seed: int = 0) -> Tokenizer:
    """A byte-level BPE of VOCABULARY entries with the two special tokens as ids 0 and 1."""
    tokenizer = empty_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=24,
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample_texts(documents, exponent, seed), trainer)
    return tokenizer
