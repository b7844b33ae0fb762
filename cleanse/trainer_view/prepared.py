"""One conversation, exactly as the trainer will hand it to the model: ids, and which of them carry loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cleanse.formats import Conversation
from cleanse.formats.turns import WEIGHT_KEYS
from cleanse.tokenizers_io import LoadedTokenizer
from cleanse.trainer_view.settings import TrainerSettings
from cleanse.trainer_view.template import ChatTemplate, Rendered, Spans, TemplateRefusedError

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Prepared:
    """A record before and after truncation."""

    ids: NDArray[np.int64]  # (tokens,) before truncation
    trained: Mask  # (tokens,) before truncation
    kept: NDArray[np.int64]  # indices of the tokens that stay, ascending

    @property
    def n_tokens(self) -> int:
        """Tokens of the whole conversation."""
        return len(self.ids)

    @property
    def n_trained(self) -> int:
        """Tokens that carry loss, before truncation."""
        return int(self.trained.sum())

    @property
    def n_trained_left(self) -> int:
        """Tokens that carry loss and stay."""
        return int(self.trained[self.kept].sum())

    @property
    def kept_ids(self) -> NDArray[np.int64]:
        """The ids that stay."""
        return self.ids[self.kept]


class Trainer:
    """Prepares conversations by one tokenizer, template and set of settings."""

    def __init__(self, loaded: LoadedTokenizer, settings: TrainerSettings) -> None:
        """Raises TemplateRefusedError where the tokenizer's chat template does not compile."""
        self.loaded, self.settings = loaded, settings
        source = loaded.template()
        self.template = None if source is None else ChatTemplate(source, loaded.named)
        tools = loaded.template(tools=True)
        self._with_tools = self.template if tools in (None, source) else ChatTemplate(tools or "", loaded.named)

    @property
    def max_length(self) -> int | None:
        """The longest record the trainer takes; the model's own limit where ms-swift is given none."""
        if self.settings.max_length is None and self.settings.trainer == "ms-swift":
            return self.loaded.model_max_length
        return self.settings.max_length

    def prepare(self, talk: Conversation, *, rejected: bool = False) -> Prepared:
        """Ids and loss mask of a conversation (of its rejected ending, where asked).

        Raises:
            TemplateRefusedError: the chat template will not have it.
        """
        turns = talk.rejected if rejected and talk.rejected is not None else talk.turns
        as_is = talk.document or (talk.plain and self.settings.trainer == "trl")
        if self.template is None or as_is:
            ids, trained, edges = self._plain(talk, rejected=rejected)
        else:
            ids, trained, edges = self._templated(turns, talk)
        return Prepared(ids, trained, self.cut(trained, edges))

    def _plain(self, talk: Conversation, *, rejected: bool) -> tuple[NDArray[np.int64], Mask, list[int]]:
        """Prompt and answer as they stand, with EOS: what TRL does with strings."""
        if not talk.plain:
            return self._untemplated(talk.rejected if rejected and talk.rejected is not None else talk.turns)
        answer = talk.rejected_text if rejected else talk.answer_text
        eos = self.loaded.named.get("eos_token", "")
        answer = answer if eos and answer.endswith(eos) else answer + eos
        whole = _ids(self.loaded, talk.prompt_text + answer, special=True)
        if talk.document or self.settings.loss == "all":
            return whole, np.ones(len(whole), np.bool_), [0, len(whole)]
        before = common_prefix(_ids(self.loaded, talk.prompt_text, special=True), whole)
        return whole, np.arange(len(whole)) >= before, [0, before, len(whole)]

    def _untemplated(self, turns: Sequence[dict[str, object]]) -> tuple[NDArray[np.int64], Mask, list[int]]:
        """Turns for a tokenizer without a chat template: one line each, loss on those of the assistant."""
        lines = [f"{turn.get('content') or ''}\n" for turn in turns]
        ends = np.cumsum([len(line) for line in lines]).tolist()
        spans = [
            (end - len(line), end)
            for turn, line, end in zip(turns, lines, ends, strict=True)
            if turn.get("role") == "assistant" and not _switched_off(turn)
        ]
        ids, offsets = _encode(self.loaded, "".join(lines))
        trained = np.ones(len(ids), np.bool_) if self.settings.loss == "all" else mask_of(offsets, spans)
        return ids, trained, _edges(trained)

    def _templated(
        self, turns: Sequence[dict[str, object]], talk: Conversation
    ) -> tuple[NDArray[np.int64], Mask, list[int]]:
        template = self._with_tools if talk.tools else self.template
        assert template is not None
        rendered = template.render(turns, tools=talk.tools, extra=talk.extra)
        ids, offsets = _encode(self.loaded, rendered.text)
        loss = self.settings.loss
        n_prompt = min(talk.n_prompt, len(turns))
        trained = np.ones(len(ids), np.bool_)
        if loss in ("completion", "auto", "assistant") and n_prompt:
            prompt = template.render(turns[:n_prompt], tools=talk.tools, add_generation_prompt=True, extra=talk.extra)
            start = common_prefix(_ids(self.loaded, prompt.text), ids)
            trained &= np.arange(len(ids)) >= start
        if loss in ("answers", "assistant"):
            trained &= mask_of(offsets, _answers(template, rendered, turns, talk))
        return ids, trained, _edges(trained)

    def cut(self, trained: Mask, edges: Sequence[int]) -> NDArray[np.int64]:
        """The tokens that stay. ``edges`` bound the stretches of prompt and answer, in turn."""
        n, limit = len(trained), self.max_length
        every = np.arange(n)
        if limit is None or n <= limit or self.settings.packing:
            return every
        how = self.settings.truncation
        if how == "keep_start":
            return every[:limit]
        if how == "keep_end":
            return every[n - limit :]
        return every[:0] if how == "drop" else _split(trained, edges, limit)


def common_prefix(left: NDArray[np.int64], right: NDArray[np.int64]) -> int:
    """How many leading ids two sequences share: where TRL lets a completion start."""
    n = min(len(left), len(right))
    differs = np.flatnonzero(left[:n] != right[:n])
    return int(differs[0]) if len(differs) else n


def mask_of(offsets: NDArray[np.int64], spans: Spans) -> Mask:
    """Tokens that overlap any span. ``offsets``: (tokens, 2), in characters; spans ascending, not overlapping.

    As transformers' ``return_assistant_tokens_mask``: a token counts when it ends after the start of the first
    span that does not end at or before the token's start.
    """
    if not spans or len(offsets) == 0:
        return np.zeros(len(offsets), np.bool_)
    starts = np.array([start for start, _ in spans])
    ends = np.array([end for _, end in spans])
    which = np.searchsorted(ends, offsets[:, 0], side="right")
    inside = which < len(spans)
    mask: Mask = inside & (offsets[:, 1] > starts[np.minimum(which, len(spans) - 1)])
    return mask


def _edges(trained: Mask) -> list[int]:
    """Where prompt and answer alternate, both ends included."""
    change = np.flatnonzero(np.diff(trained.astype(np.int8))) + 1
    return [0, *(int(i) for i in change), len(trained)]


def _answers(
    template: ChatTemplate, rendered: Rendered, turns: Sequence[dict[str, object]], talk: Conversation
) -> Spans:
    """The characters that the model is trained to write: as the template marks them, else turn by turn.

    Without marks, an answer is what rendering one more turn adds after the generation prompt, its end-of-turn
    token included; where a template is not prefix-preserving, it is the place of the turn's own text.
    """
    answers = [i for i, turn in enumerate(turns) if turn.get("role") == "assistant"]
    if template.marks_generation:
        marked = rendered.generated
        if len(marked) != len(answers):
            return marked
        return [span for i, span in zip(answers, marked, strict=True) if not _switched_off(turns[i])]
    spans: Spans = []
    at = 0
    for i in answers:
        turn = turns[i]
        if _switched_off(turn):
            continue
        try:
            before = template.render(turns[:i], tools=talk.tools, add_generation_prompt=True, extra=talk.extra).text
            after = template.render(turns[: i + 1], tools=talk.tools, extra=talk.extra).text
        except TemplateRefusedError:
            before, after = "\0", ""
        if rendered.text.startswith(after) and after.startswith(before) and len(before) >= at:
            spans.append((len(before), len(after)))
        else:
            text = str(turn.get("content") or "").strip()
            start = rendered.text.find(text, at)
            if not text or start < 0:
                continue
            spans.append((start, start + len(text)))
        at = spans[-1][1]
    return spans


def _switched_off(turn: Mapping[str, object]) -> bool:
    """Whether the turn's own switch (OpenAI's weight, ms-swift's loss, axolotl's train) turns training off."""
    return any(turn.get(key, 1) in (0, False) for key in WEIGHT_KEYS)


def _split(trained: Mask, edges: Sequence[int], limit: int) -> NDArray[np.int64]:
    """LLaMA-Factory's cut: pair by pair, prompt and answer share what is left in proportion.

    Source: ``infer_seqlen`` in LLaMA-Factory ``src/llamafactory/data/processor/processor_utils.py``.
    """
    kept: list[NDArray[np.int64]] = []
    used = 0
    bounds = list(pairwise(edges))
    if bounds and trained[bounds[0][0]]:
        bounds.insert(0, (0, 0))  # an answer without a prompt
    for i in range(0, len(bounds), 2):
        left = limit - used
        if left <= 0:
            break
        asked = bounds[i]
        answer = bounds[i + 1] if i + 1 < len(bounds) else (asked[1], asked[1])
        n_asked, n_answer = asked[1] - asked[0], answer[1] - answer[0]
        if n_answer * 2 < left:
            most = left
        elif n_asked * 2 < left:
            most = left - n_asked
        else:
            most = int(left * (n_answer / (n_asked + n_answer)))
        n_answer = min(most, n_answer)
        n_asked = min(max(left - n_answer, 0), n_asked)
        kept += [np.arange(asked[0], asked[0] + n_asked), np.arange(answer[0], answer[0] + n_answer)]
        used += n_asked + n_answer
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)


def _ids(loaded: LoadedTokenizer, text: str, *, special: bool = False) -> NDArray[np.int64]:
    [found] = loaded.tokenizer.encode_batch_fast([text], add_special_tokens=special)  # without offsets: faster
    return np.array(found.ids, np.int64)


def _encode(loaded: LoadedTokenizer, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    found = loaded.tokenizer.encode(text, add_special_tokens=False)
    return np.array(found.ids, np.int64), np.array(found.offsets, np.int64).reshape(-1, 2)
