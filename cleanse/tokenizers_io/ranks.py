"""Byte-pair ranks (tiktoken's files, Mistral's tekken) as a ``tokenizers.Tokenizer``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path

import orjson
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from cleanse.tokenizers_io.loaded import LoadedTokenizer, TokenizerError

_WORDS = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
CL100K = _WORDS % r"\p{N}{1,3}"
QWEN = _WORDS % r"\p{N}"
QWEN35 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"""
    r"""| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
O200K = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
    r"""|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
    r"""|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

_LLAMA3 = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|reserved_special_token_2|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
)
_QWEN_CHAT = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_QWEN_MEDIA = (
    *("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>"),
    *("<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
)

_KNOWN: dict[int, tuple[str, Sequence[str]]] = {
    50256: (GPT2, ("<|endoftext|>",)),
    100256: (CL100K, ("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")),
    128000: (CL100K, _LLAMA3),
    151643: (QWEN, (*_QWEN_CHAT, *_QWEN_MEDIA)),
    199998: (O200K, ("<|endoftext|>",)),
    248044: (QWEN35, (*_QWEN_CHAT, *_QWEN_MEDIA)),
}
"""A ranks file says neither how text is split nor which control tokens follow: both are known by its size."""


def load_tiktoken(path: Path, source: str) -> LoadedTokenizer:
    """A ``.tiktoken`` file: a line per token, base64 and rank.

    Raises:
        TokenizerError: a line is not that, or no family with so many ranks is known.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise TokenizerError(f"{source}, line {number}: expected a base64 token and its rank") from error
    known = _KNOWN.get(len(ranks))
    if known is None:
        sizes = ", ".join(map(str, _KNOWN))
        raise TokenizerError(
            f"{source} has {len(ranks)} ranks, and how such a vocabulary splits text is not known (known sizes: "
            f"{sizes}): give the model's tokenizer.json or its folder"
        )
    pattern, special = known
    tokenizer = from_ranks(ranks, pattern, special)
    if pattern in (QWEN, QWEN35):
        tokenizer.normalizer = normalizers.NFC()  # as Qwen's own encoder does before tiktoken
    ends = "<|im_end|>" if "<|im_end|>" in special else "<|end_of_text|>" if special == _LLAMA3 else "<|endoftext|>"
    starts = {"bos_token": "<|begin_of_text|>"} if special == _LLAMA3 else {}
    return LoadedTokenizer(tokenizer, source, {"eos_token": ends, **starts})


def load_tekken(path: Path, source: str) -> LoadedTokenizer:
    """Mistral's ``tekken.json``: ranks with the pattern beside them; control tokens come first.

    Raises:
        TokenizerError: a key is missing.
    """
    try:
        data = orjson.loads(path.read_bytes())
        config, offset = data["config"], data["config"]["default_num_special_tokens"]
        kept = data["vocab"][: config["default_vocab_size"] - offset]
        ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in kept}
        pattern = config["pattern"]
    except (KeyError, TypeError, ValueError) as error:
        raise TokenizerError(f"{source} is not a tekken file: {error!r}") from error
    given = [entry["token_str"] for entry in data.get("special_tokens") or []] or list(_TEKKEN)
    special = [*given, *(f"<SPECIAL_{i}>" for i in range(len(given), offset))][:offset]
    tokenizer = from_ranks(ranks, pattern, special, first=offset)
    return LoadedTokenizer(tokenizer, source, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})


_TEKKEN = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)


def from_ranks(ranks: dict[bytes, int], pattern: str, special: Sequence[str], first: int = 0) -> Tokenizer:
    """A byte-level BPE tokenizer that gives the same ids as tiktoken does for these ranks.

    A rank's merges are all ways to make its token from two tokens that exist, as transformers converts them.
    ``first`` is the id of rank 0; control tokens go below it, or above all ranks where it is 0.
    """
    alphabet = _byte_alphabet()
    text = {token: "".join(map(alphabet.__getitem__, token)) for token in ranks}
    vocabulary = {text[token]: rank + first for token, rank in ranks.items()}
    merges: list[tuple[str, str]] = []
    for token in sorted(ranks, key=ranks.__getitem__):
        halves = [(token[:i], token[i:]) for i in range(1, len(token))]
        pairs = [(left, right) for left, right in halves if left in ranks and right in ranks]
        pairs.sort(key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        merges += [(text[left], text[right]) for left, right in pairs]
    if first:
        vocabulary.update({token: i for i, token in enumerate(special)})
    tokenizer = Tokenizer(BPE(vocabulary, merges, fuse_unk=False, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer


def _byte_alphabet() -> list[str]:
    """GPT-2's printable stand-in for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = iter(range(0x100, 0x200))
    return [chr(b) if b in plain else chr(next(shifted)) for b in range(256)]
