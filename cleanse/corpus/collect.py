"""Pass 1: what the corpus statistics need of a shard, gathered block by block and committed to one file."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from cleanse.corpus import arrays_file, exchanges, signatures, sketches
from cleanse.corpus.characters import SEPARATOR
from cleanse.corpus.exchanges import Indices, spread
from cleanse.corpus.tokens import BREAK_HASH, Tokens, mix, tokenise
from cleanse.corpus.vocabulary import Vocabulary
from cleanse.measures import TextBatch

_MAX_EXCHANGE_TOKENS = 1024  # of one prompt, and of one answer, over all their segments: the first ones
_U = np.uint64


class Collector:
    """Gathers the features of one shard, or of a few that are committed together.

    Feed it every block in order, then ``write``.
    """

    def __init__(self) -> None:
        self._vocabulary = Vocabulary()
        self._parts: dict[str, list[NDArray[Any]]] = {}
        self._records = 0

    def collect(self, texts: TextBatch, rows: NDArray[np.int64], shard: int = 0) -> None:
        """Adds a block.

        Args:
            texts: the segments of the block's records.
            rows: (records,) shard-local row numbers, ascending, and larger than those of earlier blocks.
            shard: which shard they count in, where one file holds several.
        """
        data, offsets = normalised(texts)
        tokens = tokenise(data, offsets)
        ids = self._vocabulary.intern(data, tokens.hashes, tokens.kinds, tokens.starts, tokens.ends)
        self._collect_records(texts, tokens, rows, shard)
        self._collect_exchanges(texts, tokens, ids)

    def _collect_records(self, texts: TextBatch, tokens: Tokens, rows: NDArray[np.int64], shard: int) -> None:
        segments = np.searchsorted(texts.record, np.arange(texts.n_records + 1))
        empty = tokens.weight == 0
        exact = np.empty((texts.n_records, 2), np.uint64)
        _combine(segments, tokens.text_hash, texts.role, exact)
        digests, bands = sketches.sketch(tokens.offsets[segments], tokens.hashes, tokens.kinds)
        blank = np.add.reduceat(np.append(~empty, False).astype(np.int64), np.minimum(segments[:-1], len(empty))) == 0
        exact[blank | (segments[1:] == segments[:-1])] = 0  # records without text are no copies of each other
        self._records += texts.n_records
        self._add(
            record_row=rows,
            record_shard=np.full(len(rows), shard, np.int32),
            record_exact=exact,
            record_digest=digests,
            record_bands=bands,
        )

    def _collect_exchanges(self, texts: TextBatch, tokens: Tokens, ids: NDArray[np.uint32]) -> None:
        found = exchanges.exchanges(texts)
        separator = self._vocabulary.intern(
            np.zeros(0, np.uint8),
            np.array([BREAK_HASH]),
            np.array([SEPARATOR], np.uint8),
            np.zeros(1, np.int64),
            np.zeros(1, np.int64),
        )[0]
        prompt_offsets, prompt = _gather(found.prompt_offsets, found.prompt_segments, tokens.offsets, ids, separator)
        answer_offsets, answer = _gather(found.answer_offsets, found.answer_segments, tokens.offsets, ids, separator)
        n = len(found)
        prompt_hash, whole = np.empty((n, 2), np.uint64), np.empty(n, np.uint64)
        _combine(found.prompt_offsets, tokens.text_hash[found.prompt_segments], None, prompt_hash)
        _chain(found.answer_offsets, tokens.word_hash[found.answer_segments], whole)
        weights = np.concatenate([np.zeros(1, np.int64), np.cumsum(tokens.weight[found.answer_segments])])
        weight = np.diff(weights[found.answer_offsets])
        types = self._vocabulary
        edges = signatures.signatures(answer_offsets, types.hashes[answer], types.kinds[answer], whole, weight)
        self._add(
            exchange_record=found.record + self._records - texts.n_records,
            prompt_length=np.diff(prompt_offsets).astype(np.int32),
            prompt_token=prompt,
            prompt_hash=prompt_hash[:, 0],
            answer_length=np.diff(answer_offsets).astype(np.int32),
            answer_token=answer,
            answer_weight=np.minimum(weight, np.iinfo(np.int32).max).astype(np.int32),
            signature=edges,
        )

    def _add(self, **arrays: NDArray[Any]) -> None:
        for name, array in arrays.items():
            self._parts.setdefault(name, []).append(array)

    def write(self, path: Path) -> None:
        """Writes the shard's features; the caller renames the file into place once it is whole."""
        empty = TextBatch.from_texts([])
        if not self._parts:
            self.collect(empty, np.zeros(0, np.int64))
        arrays = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        arrays_file.write(path, {**arrays, **self._vocabulary.arrays()})


def normalised(texts: TextBatch) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The batch's text in Unicode form NFC: the buffer and (segments + 1,) byte offsets."""
    array = texts.arrow()
    changed: dict[int, str] = {}
    # Not Arrow's utf8_normalize: that of pyarrow 25 decomposes when it is asked for NFC.
    for segment in np.flatnonzero(np.asarray(pc.not_equal(pc.utf8_length(array), pc.binary_length(array)))).tolist():
        text = texts.text(segment)
        if not unicodedata.is_normalized("NFC", text):
            changed[segment] = unicodedata.normalize("NFC", text)
    if not changed:
        return texts.data, texts.offsets
    mask = np.zeros(len(texts), np.bool_)
    mask[list(changed)] = True
    array = pc.replace_with_mask(array, pa.array(mask), pa.array(changed.values(), pa.large_string()))
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(array.buffers()[2], np.uint8), offsets


def _gather(
    segment_offsets: Indices, segments: Indices, token_offsets: Indices, ids: NDArray[np.uint32], separator: int
) -> tuple[Indices, NDArray[np.uint32]]:
    """Lays the tokens of the segments of each exchange end to end, with a break between two segments."""
    starts, ends = token_offsets[segments], token_offsets[segments + 1]
    lengths = ends - starts
    owner = np.repeat(np.arange(len(segment_offsets) - 1), np.diff(segment_offsets))
    is_first = np.ones(len(segments), np.bool_)
    is_first[1:] = owner[1:] != owner[:-1]
    full = lengths + ~is_first
    # A break stands where a segment that is not the first begins.
    at = np.concatenate([np.zeros(1, np.int64), np.cumsum(full)])
    tokens = np.full(int(at[-1]), separator, np.uint32)
    tokens[spread(at[:-1] + ~is_first, at[1:])] = ids[spread(starts, ends)]
    offsets = at[segment_offsets]
    kept = np.minimum(np.diff(offsets), _MAX_EXCHANGE_TOKENS)
    tokens = tokens[spread(offsets[:-1], offsets[:-1] + kept)]
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)]), tokens


@njit(cache=True, nogil=True)
def _chain(offsets: Indices, hashes: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    for g in range(len(offsets) - 1):
        h = _U(0)
        for k in range(offsets[g], offsets[g + 1]):
            h = mix(h ^ hashes[k])
        out[g] = h


def _combine(
    offsets: Indices, hashes: NDArray[np.uint64], role: NDArray[np.uint8] | None, out: NDArray[np.uint64]
) -> None:
    """One pair of hashes per group of segments; with ``role``, who speaks counts too."""
    salted = hashes if role is None else hashes + (role.astype(np.uint64) * _U(0x9E3779B97F4A7C15))[:, None]
    for half in range(2):
        column = np.empty(len(offsets) - 1, np.uint64)
        _chain(offsets, np.ascontiguousarray(salted[:, half]), column)
        out[:, half] = column
