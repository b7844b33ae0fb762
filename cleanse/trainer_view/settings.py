"""What the trainer will do with a conversation: how long, cut where, and what it learns from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Truncation = Literal["keep_start", "keep_end", "split", "drop"]
"""Which tokens of a record longer than ``max_length`` stay. ``split``: each turn's prompt and answer are cut in
proportion (LLaMA-Factory's ``infer_seqlen``); ``drop``: the record is left out (ms-swift's ``delete``)."""

Loss = Literal["auto", "answers", "assistant", "completion", "all"]
"""Which tokens carry loss. ``answers``: assistant turns of a conversation, else the completion; ``auto``: what TRL
does by default: the completion where the data tells prompt and completion apart, else everything."""

TRAINERS = ("generic", "trl", "ms-swift", "llama-factory")


@dataclass(frozen=True)
class TrainerSettings:
    """A trainer's settings. Small, picklable, and part of what decides a scan's result."""

    trainer: str = "generic"
    max_length: int | None = None
    truncation: Truncation = "keep_start"
    loss: Loss = "answers"
    packing: bool = False  # only "longer than the window" can be said about a record that will be packed
    tokens_per_image: int = 0  # what one image placeholder expands to
    response_template: str | None = None  # the marker of older TRL's completion-only collator
    model_vocab_size: int | None = None  # rows of the model's embedding; None: not known

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"max_length is {self.max_length}: expected 1 or more tokens")

    def to_json(self) -> dict[str, Any]:
        """All fields as plain values."""
        return dict(self.__dict__)

    @classmethod
    def of(
        cls,
        trainer: str = "generic",
        *,
        max_length: int | None = None,
        truncation: Truncation | None = None,
        loss: Loss | None = None,
        **more: Any,
    ) -> TrainerSettings:
        """The defaults of a trainer by name, with what the user says instead.

        Defaults read from: TRL 1.16 ``SFTConfig`` (max_length 1024, truncation_mode "keep_start", loss on the
        completion of prompt-completion data and on everything otherwise); ms-swift 3 (max_length is the model's,
        truncation_strategy "delete", loss on the answers); LLaMA-Factory 0.9 (cutoff_len 2048, ``infer_seqlen``,
        loss on the answers). "generic": no maximum length, loss on the answers.

        Raises:
            ValueError: no such trainer, or a length below 1.
        """
        if trainer not in _DEFAULTS:
            raise ValueError(f"no trainer is called {trainer!r}: expected one of {', '.join(TRAINERS)}")
        given = {"max_length": max_length, "truncation": truncation, "loss": loss, **more}
        return replace(_DEFAULTS[trainer], **{k: v for k, v in given.items() if v is not None})


_DEFAULTS = {
    "generic": TrainerSettings(),
    "trl": TrainerSettings("trl", max_length=1024, loss="auto"),
    "ms-swift": TrainerSettings("ms-swift", truncation="drop"),
    "llama-factory": TrainerSettings("llama-factory", max_length=2048, truncation="split"),
}
