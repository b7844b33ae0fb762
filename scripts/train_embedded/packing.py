"""Token rows for training: pieces of documents, drawn by group, packed into rows of one length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from .corpus import Document
from .vocabulary import EOS_ID

Tokens = NDArray[np.uint16]


@dataclass(frozen=True)
class TokenStore:
    """Every document as tokens: piece i is `tokens[starts[i]:starts[i + 1]]` and belongs to group `group[i]`."""

    tokens: Tokens
    starts: NDArray[np.int64]
    group: NDArray[np.int32]
    held_out: NDArray[np.bool_]
    n_bytes: NDArray[np.int64]
    names: list[str]

    def piece(self, index: int) -> Tokens:
        """The tokens of one piece."""
        return self.tokens[self.starts[index] : self.starts[index + 1]]

    def save(self, path: Path) -> None:
        """One uncompressed .npz."""
        np.savez(
            path,
            tokens=self.tokens,
            starts=self.starts,
            group=self.group,
            held_out=self.held_out,
            n_bytes=self.n_bytes,
            names=np.array(self.names),
        )

    @classmethod
    def load(cls, path: Path) -> TokenStore:
        """What `save` wrote."""
        with np.load(path) as data:
            return cls(
                tokens=data["tokens"],
                starts=data["starts"],
                group=data["group"],
                held_out=data["held_out"],
                n_bytes=data["n_bytes"],
                names=[str(name) for name in data["names"]],
            )


def encode_documents(documents: Sequence[Document], tokenizer: Tokenizer, piece: int) -> TokenStore:
    """Encodes every document, cut into pieces of at most `piece` tokens."""
    names = sorted({doc.group for doc in documents})
    ids = {name: i for i, name in enumerate(names)}
    chunks: list[Tokens] = []
    group: list[int] = []
    held_out: list[bool] = []
    n_bytes: list[int] = []
    for start in range(0, len(documents), 512):
        batch = documents[start : start + 512]
        for doc, encoding in zip(batch, tokenizer.encode_batch_fast([d.text for d in batch]), strict=True):
            tokens = np.array(encoding.ids, dtype=np.uint16)
            size = len(doc.text.encode())
            for at in range(0, len(tokens), piece):
                chunk = tokens[at : at + piece]
                chunks.append(chunk)
                group.append(ids[doc.group])
                held_out.append(doc.held_out)
                n_bytes.append(round(size * len(chunk) / len(tokens)))
    return TokenStore(
        tokens=np.concatenate(chunks),
        starts=np.concatenate([[0], np.cumsum([len(chunk) for chunk in chunks])]).astype(np.int64),
        group=np.array(group, dtype=np.int32),
        held_out=np.array(held_out),
        n_bytes=np.array(n_bytes, dtype=np.int64),
        names=names,
    )


def group_shares(store: TokenStore, exponent: float) -> NDArray[np.float64]:
    """The share of training tokens each group shall have: (its tokens) ** exponent, normalised."""
    lengths = np.diff(store.starts) * ~store.held_out
    tokens = np.bincount(store.group, weights=lengths, minlength=len(store.names))
    weights = tokens**exponent
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def unigram_counts(store: TokenStore, exponent: float, vocabulary: int, total: int = 2**30) -> NDArray[np.uint32]:
    """How often each token id is met in `total` training tokens drawn by `group_shares`, EOS after each piece."""
    lengths = np.diff(store.starts)
    per_piece = np.where(store.held_out, 0.0, 1.0)
    tokens = np.bincount(store.group, weights=(lengths + 1) * per_piece, minlength=len(store.names))
    scale = group_shares(store, exponent) / np.maximum(tokens, 1)
    weight = per_piece * scale[store.group]
    counts = np.bincount(store.tokens, weights=np.repeat(weight, lengths), minlength=vocabulary)
    counts[EOS_ID] += weight.sum()
    return np.round(counts * (total / counts.sum())).astype(np.uint32)


@dataclass
class RowStream:
    """An endless, resumable stream of packed rows.

    A group is drawn by its share (corrected for the mean length of its pieces), then its next piece in a shuffled
    order that changes every round. Each piece is followed by EOS, and a row is a plain cut of that stream.
    """

    store: TokenStore
    shares: NDArray[np.float64]
    seed: int
    drawn: NDArray[np.int64] = field(init=False)
    leftover: Tokens = field(init=False)

    def __post_init__(self) -> None:
        trainable = ~self.store.held_out
        self._members = [np.flatnonzero((self.store.group == g) & trainable) for g in range(len(self.store.names))]
        lengths = np.diff(self.store.starts)
        mean = np.array([lengths[m].mean() + 1 if len(m) else np.inf for m in self._members])
        rate = self.shares / mean
        self._rate = rate / rate.sum()
        self._orders: dict[int, tuple[int, NDArray[np.int64]]] = {}
        self._rng = np.random.default_rng(self.seed)
        self.drawn = np.zeros(len(self._members), dtype=np.int64)
        self.leftover = np.array([EOS_ID], dtype=np.uint16)

    def _next_piece(self, group: int) -> Tokens:
        members = self._members[group]
        rounds, at = divmod(int(self.drawn[group]), len(members))
        cached = self._orders.get(group)
        if cached is None or cached[0] != rounds:
            order = np.random.default_rng([self.seed, group, rounds]).permutation(members)
            cached = self._orders[group] = (rounds, order)
        self.drawn[group] += 1
        return self.store.piece(int(cached[1][at]))

    def rows(self, n: int, length: int) -> NDArray[np.int64]:
        """The next n rows, (n, length)."""
        parts = [self.leftover]
        have = len(self.leftover)
        while have < n * length:
            for group in self._rng.choice(len(self._rate), size=32, p=self._rate):
                piece = self._next_piece(int(group))
                parts += [piece, np.array([EOS_ID], dtype=np.uint16)]
                have += len(piece) + 1
        flat = np.concatenate(parts)
        self.leftover = flat[n * length :].copy()
        return flat[: n * length].reshape(n, length).astype(np.int64)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps to go on with the very next row."""
        return {"drawn": self.drawn, "leftover": self.leftover, "rng": self._rng.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues where `state` was taken."""
        self.drawn = np.array(state["drawn"])
        self.leftover = np.array(state["leftover"], dtype=np.uint16)
        self._rng.bit_generator.state = state["rng"]
