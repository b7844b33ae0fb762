"""What a worker knows about the tokenizer and the trainer, and what it says about a batch of texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import orjson

from cleanse.measures import TextBatch
from cleanse.tokenizers_io import LoadedTokenizer, load_tokenizer
from cleanse.trainer_view.glitch import embedding_of, read_glitch_list, undertrained
from cleanse.trainer_view.memo import MEMO
from cleanse.trainer_view.prepared import Trainer
from cleanse.trainer_view.records import RecordReport, ShapeMemory, report_on
from cleanse.trainer_view.settings import TrainerSettings
from cleanse.trainer_view.template import TemplateRefusedError
from cleanse.trainer_view.word_table import LONGEST_PIECE
from cleanse.trainer_view.words import CutTexts, TokenTally, WordCounter

_EXACT_BYTES = 1 << 20  # a larger text is counted by its words, not encoded as a whole


@dataclass(frozen=True)
class TokenSource:
    """All that is needed to make the same context again in another process. Small and picklable."""

    tokenizer: str
    settings: TrainerSettings = field(default_factory=TrainerSettings)
    chat_template: str | None = None
    glitch_list: str | None = None  # a file of under-trained tokens
    model: str | None = None  # folder of the model to be trained: its embedding shows which tokens are under-trained
    stand_in: bool = False  # nobody asked for this tokenizer: it is not the one of the training to come

    def load(self) -> TokenContext:
        """The context.

        Raises TokenizerError where the tokenizer, its template, the list or the model cannot be read.
        """
        loaded = load_tokenizer(self.tokenizer, self.chat_template)
        settings, glitch = self.settings, set[int]()
        if self.glitch_list is not None:
            glitch.update(read_glitch_list(self.glitch_list, loaded))
        if self.model is not None:
            matrix = embedding_of(self.model)
            glitch.update(undertrained(matrix, loaded))
            if settings.model_vocab_size is None:
                settings = replace(settings, model_vocab_size=len(matrix))
        return TokenContext(loaded, settings, glitch, stand_in=self.stand_in)


class TokenContext:
    """One tokenizer and one trainer's settings, with the words and templates they have met so far."""

    def __init__(
        self,
        loaded: LoadedTokenizer,
        settings: TrainerSettings,
        glitch: Iterable[int] = (),
        *,
        stand_in: bool = False,
    ) -> None:
        """Raises TemplateRefusedError where the tokenizer's chat template does not compile."""
        self.loaded, self.settings, self._stand_in = loaded, settings, stand_in
        self.glitch = tuple(sorted(glitch))
        self.counter = WordCounter(loaded, glitch=self.glitch, model_vocab_size=settings.model_vocab_size)
        self.trainer = Trainer(loaded, settings)
        self.shapes = ShapeMemory()

    @classmethod
    def load(
        cls, tokenizer: str, settings: TrainerSettings | None = None, chat_template: str | None = None
    ) -> TokenContext:
        """From a path or hub id; see ``load_tokenizer`` for the errors."""
        return TokenSource(tokenizer, settings or TrainerSettings(), chat_template).load()

    def attach(self, texts: TextBatch) -> None:
        """Lets the measures of this batch use the tokenizer."""
        texts.memo[MEMO] = self

    def of(self, texts: TextBatch) -> TokenBatch:
        """What the tokenizer makes of the batch, worked out once."""
        return texts.once("token_batch", lambda batch: TokenBatch(self, batch))

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) of everything here that can change a verdict."""
        parts = [self.loaded.fingerprint, self.settings.to_json(), self.glitch]
        return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with tokenizer and template themselves, whatever the data: to be said once."""
        if self._stand_in:
            return ("no --tokenizer given: texts are checked with the embedded model's, what a trainer sees is not",)
        said = []
        template = self.trainer.template
        if template is None:
            said.append("the tokenizer has no chat template: conversations are counted without one")
        elif not _trains_stop(self.trainer):
            said.append(
                "the chat template leaves the end-of-turn token out of the loss: the model may not learn to stop"
            )
        size = self.settings.model_vocab_size
        if size is not None and self.loaded.vocab_size > size:
            said.append(f"the tokenizer has {self.loaded.vocab_size} ids, the model's embedding {size} rows")
        return tuple(said)


@dataclass
class TokenBatch:
    """A batch of texts as the tokenizer and the trainer see it."""

    context: TokenContext
    texts: TextBatch
    _exact: dict[int, list[int] | None] = field(default_factory=dict)

    @cached_property
    def cut(self) -> CutTexts:
        """The batch cut into words."""
        return self.context.counter.cut(self.texts)

    @cached_property
    def tally(self) -> TokenTally:
        """Counts per segment, from its distinct words; of a long one from those in three windows."""
        return self.context.counter.count(self.cut, np.zeros(len(self.texts), np.bool_))

    @cached_property
    def records(self) -> RecordReport:
        """What the trainer makes of each record."""
        return report_on(self.context.trainer, self.context.shapes, self.texts, self.tally, counted=self.counted)

    def counted(self, full: np.ndarray) -> TokenTally:
        """Counts with every word of some segments, shape (segments,)."""
        return self.context.counter.count(self.cut, full)

    @cached_property
    def encodable(self) -> np.ndarray:
        """Segments that may be encoded as a whole, shape (segments,)."""
        short: np.ndarray = (self.tally.longest <= LONGEST_PIECE) & (np.diff(self.texts.offsets) <= _EXACT_BYTES)
        return short

    def exact(self, segment: int) -> list[int] | None:
        """The ids of one segment; None where the tokenizer panics or the text may not be encoded as a whole."""
        if segment not in self._exact:
            allowed = bool(self.encodable[segment])
            self._exact[segment] = self.context.counter.encode(self.texts.text(segment)) if allowed else None
        return self._exact[segment]


def _trains_stop(trainer: Trainer) -> bool:
    """Whether the token that ends an answer carries loss, asked with the smallest conversation there is."""
    from cleanse.formats import Conversation  # noqa: PLC0415 - for this one question

    talk = Conversation([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    try:
        found = trainer.prepare(talk)
    except TemplateRefusedError:
        return True  # another rule says so, with the template's own words
    special = np.array(sorted(trainer.loaded.special.values()), np.int64)
    return bool(np.isin(found.ids[found.trained], special).any()) or not len(special)
