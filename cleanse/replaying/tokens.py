"""From a row of the data to the tokens and labels that the trainer fed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleanse.formats import Conversation, conversation
from cleanse.replaying.content import DataRow
from cleanse.replaying.skipping import IGNORED
from cleanse.tokenizers_io import LoadedTokenizer
from cleanse.trainer_view import TemplateRefusedError, Trainer, TrainerSettings

_MASKS = ("completion_mask", "assistant_masks")


@dataclass(frozen=True)
class Encoded:
    """A row as the model reads it."""

    ids: NDArray[np.int64]  # (tokens,)
    supervised: NDArray[np.bool_]  # (tokens,)
    problem: str = ""  # why it could not be encoded

    @property
    def n_supervised(self) -> int:
        """Tokens with a loss: the first has nothing before it."""
        return int(np.count_nonzero(self.supervised[1:]))


class Encoder:
    """Encodes rows as the trainer did.

    Columns of tokens (``input_ids``, with ``labels`` or a mask) are taken as they are. Text is rendered with the chat
    template where there is one, and as TRL does it where that is the trainer. Else the texts of the record are joined
    by one newline, with loss on the answers, behind the tokenizer's own first token; behind the model's, where a bare
    ``tokenizer.json`` says nothing of one.
    """

    def __init__(self, loaded: LoadedTokenizer | None, first_id: int | None, settings: TrainerSettings) -> None:
        """``loaded`` may be None for data that is tokens already; ``first_id`` is the model's BOS."""
        self.loaded = loaded
        self.settings = settings
        bare = loaded is not None and not loaded.named
        self._first = [first_id] if bare and first_id is not None else []
        self._trainer = None if loaded is None else Trainer(loaded, settings)

    def encode(self, row: DataRow) -> Encoded:
        """The tokens of a row. What cannot be encoded has no tokens, and says why."""
        try:
            if "input_ids" in row.record:
                return self._cut(*_given(row.record))
            if self._trainer is None:
                return _nothing("the model came without a tokenizer: name one (--tokenizer)")
            if row.fmt is not None and (self._trainer.template is not None or self.settings.trainer == "trl"):
                return self._prepared(conversation(row.fmt, row.record))
            return self._cut(*self._joined(row.segments))
        except TemplateRefusedError as error:
            return _nothing(f"the chat template refuses it: {error}")
        except (TypeError, ValueError) as error:
            return _nothing(f"it cannot be encoded: {error}")

    def _prepared(self, talk: Conversation) -> Encoded:
        assert self._trainer is not None
        found = self._trainer.prepare(talk)
        return Encoded(found.kept_ids, found.trained[found.kept])

    def _joined(self, segments: Sequence[tuple[str, bool]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        assert self.loaded is not None
        text = "\n".join(part for part, _ in segments)
        encoding = self.loaded.tokenizer.encode(text)  # special tokens have no place in the text, and no loss
        ends = np.array([end for _, end in encoding.offsets], np.int64)
        supervised = np.zeros(len(ends), np.bool_)
        at = 0
        for part, wanted in segments:
            if wanted or self.settings.loss == "all":
                supervised |= (ends > at) & (ends <= at + len(part))
            at += len(part) + 1
        ids = np.array([*self._first, *encoding.ids], np.int64)
        return ids, np.concatenate([np.zeros(len(self._first), np.bool_), supervised])

    def _cut(self, ids: NDArray[np.int64], supervised: NDArray[np.bool_]) -> Encoded:
        limit = self.settings.max_length
        if limit is None or len(ids) <= limit:
            return Encoded(ids, supervised)
        if self.settings.truncation == "drop":
            return _nothing(f"{len(ids)} tokens, above the maximum length of {limit}: the trainer leaves it out")
        part = slice(len(ids) - limit, None) if self.settings.truncation == "keep_end" else slice(limit)
        return Encoded(ids[part], supervised[part])


def _given(record: Mapping[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Columns of tokens. Padding that an attention mask leaves out has no label either."""
    ids = np.array(record["input_ids"], np.int64).reshape(-1)
    labels = record.get("labels")
    if labels is not None:
        supervised = np.array(labels, np.int64).reshape(-1) != IGNORED
    else:
        supervised = np.ones(len(ids), np.bool_)
        for name in _MASKS:
            if record.get(name) is not None:
                supervised &= np.array(record[name], np.bool_).reshape(-1)
    if len(supervised) != len(ids):
        raise ValueError(f"{len(ids)} input_ids, but {len(supervised)} labels")
    return ids, supervised


def _nothing(problem: str) -> Encoded:
    return Encoded(np.zeros(0, np.int64), np.zeros(0, np.bool_), problem)
