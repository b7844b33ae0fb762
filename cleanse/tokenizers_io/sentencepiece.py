"""A SentencePiece ``.model`` file as a ``tokenizers.Tokenizer``, without the sentencepiece library.

The file is a protobuf message; the few fields that matter are read from the wire format directly. Field numbers
are those of google/sentencepiece ``src/sentencepiece_model.proto``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram

from cleanse.tokenizers_io.loaded import LoadedTokenizer, TokenizerError

_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6  # SentencePiece.Type
_UNIGRAM, _BPE = 1, 2  # TrainerSpec.ModelType
_TRAINER_SPEC, _NORMALIZER_SPEC = 2, 3  # fields of ModelProto; 1 is a piece
_SCORE, _TYPE = 2, 3  # fields of a piece; 1 is its text
SPACE = "\u2581"


@dataclass(frozen=True)
class SentencePieceModel:
    """What the file says: pieces by id, and how text is normalised before they are looked for."""

    pieces: list[str]
    scores: list[float]
    types: list[int]
    model_type: int
    unk_id: int
    bos_id: int
    eos_id: int
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool

    @property
    def byte_fallback(self) -> bool:
        """Whether characters without a piece become bytes."""
        return _BYTE in self.types


def load_sentencepiece(path: Path, source: str) -> LoadedTokenizer:
    """A ``.model`` file of type BPE or unigram.

    Raises:
        TokenizerError: not a SentencePiece model, or one of another type (word, char).
    """
    model = parse_model(path.read_bytes(), source)
    if model.model_type not in (_UNIGRAM, _BPE):
        raise TokenizerError(f"{source}: SentencePiece models of type word or char are not supported")
    tokenizer = Tokenizer(_bpe(model) if model.model_type == _BPE else _unigram(model))
    _wrap(tokenizer, model)
    added = [
        AddedToken(model.pieces[i], normalized=False, special=kind != _USER_DEFINED)
        for i, kind in enumerate(model.types)
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]
    tokenizer.add_special_tokens([token for token in added if token.special])
    tokenizer.add_tokens([token for token in added if not token.special])
    named = {"unk_token": model.pieces[model.unk_id]}
    for name, number in (("bos_token", model.bos_id), ("eos_token", model.eos_id)):
        if 0 <= number < len(model.pieces):
            named[name] = model.pieces[number]
    if "bos_token" in named:  # as LlamaTokenizer does: a text starts with <s>
        bos = named["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, model.bos_id)]
        )
    return LoadedTokenizer(tokenizer, source, named)


def _bpe(model: SentencePieceModel) -> BPE:
    vocabulary = {piece: i for i, piece in enumerate(model.pieces)}
    merges: list[tuple[float, int, int, int, tuple[str, str]]] = []
    for i, (piece, kind) in enumerate(zip(model.pieces, model.types, strict=True)):
        if kind in (_CONTROL, _UNKNOWN, _BYTE):
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((-model.scores[i], i, vocabulary[left], vocabulary[right], (left, right)))
    merges.sort(key=lambda merge: merge[:4])  # a better score merges first, then an earlier piece
    return BPE(
        vocabulary,
        [merge[4] for merge in merges],
        unk_token=model.pieces[model.unk_id],
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
    )


def _unigram(model: SentencePieceModel) -> Unigram:
    vocabulary = list(zip(model.pieces, model.scores, strict=True))
    return Unigram(vocabulary, model.unk_id, model.byte_fallback)


def _wrap(tokenizer: Tokenizer, model: SentencePieceModel) -> None:
    """Normaliser, pre-tokenizer and decoder, as transformers builds them for such a model."""
    before: list[Any] = []
    if model.charsmap:
        before.append(normalizers.Precompiled(model.charsmap))
    if model.remove_extra_whitespaces:
        before += [normalizers.Strip(), normalizers.Replace(_two_spaces(), " ")]
    prefix = model.add_dummy_prefix
    if model.model_type == _BPE:
        before += [normalizers.Prepend(SPACE)] if prefix else []
        before.append(normalizers.Replace(" ", SPACE))
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always" if prefix else "never")
    if before:
        tokenizer.normalizer = normalizers.Sequence(before)
    after: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*after, decoders.Strip(" ", 1, 0)] if prefix else after)


def _two_spaces() -> Any:
    from tokenizers import Regex  # noqa: PLC0415 - only for models that squeeze spaces

    return Regex(" {2,}")


def parse_model(data: bytes, source: str) -> SentencePieceModel:
    """The message in a ``.model`` file. Raises TokenizerError where it is none."""
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    try:
        for number, value in _fields(data):
            if number == 1:
                fields = dict(_fields(value))
                score = struct.unpack("<f", fields[_SCORE])[0] if _SCORE in fields else 0.0
                pieces.append((fields[1].decode(), score, fields.get(_TYPE, 1)))
            elif number == _TRAINER_SPEC:
                trainer.update(_fields(value))
            elif number == _NORMALIZER_SPEC:
                normalizer.update(_fields(value))
    except (ValueError, IndexError, KeyError, struct.error, AttributeError, TypeError) as error:
        raise TokenizerError(f"{source} is not a SentencePiece model: {error}") from error
    if not pieces:
        raise TokenizerError(f"{source} is not a SentencePiece model: it has no pieces")
    names, scores, types = (list(column) for column in zip(*pieces, strict=True))
    return SentencePieceModel(
        names,
        scores,
        types,
        trainer.get(3, _UNIGRAM),
        _signed(trainer.get(40, 0)),
        _signed(trainer.get(41, 1)),
        _signed(trainer.get(42, 2)),
        normalizer.get(2, b""),
        bool(normalizer.get(3, 1)),
        bool(normalizer.get(4, 1)),
    )


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value) of a protobuf message: int for varints, bytes for everything else."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:  # noqa: PLR2004 - length-delimited
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if number == 0 or at + size > len(data):
            raise ValueError(f"a field ends beyond the file, at byte {at}")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no continuation bit
            return value, at
        if shift > 63:  # noqa: PLR2004 - ten bytes at most
            raise ValueError(f"a number does not end, at byte {at}")
