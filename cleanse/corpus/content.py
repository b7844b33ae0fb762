"""Are the prompts that share a phrase otherwise unlike each other, and does the answer follow from them?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus import ngram_kernel
from cleanse.corpus.association import PromptCounts
from cleanse.corpus.characters import CHARACTER, WORD
from cleanse.corpus.samples import Exchange

Hashes = NDArray[np.uint64]
Floats = NDArray[np.float64]

_COMMON = 0.6  # a word that more of the prompts share belongs to what they have in common
_N_PAIRS = 96
_QUANTILE = 0.1  # some pairs of unlike prompts are alike by accident; a tenth of the pairs is no accident
_RARE = 3.0  # nats: held by fewer than 5 % of prompts


@dataclass(frozen=True)
class Content:
    """What the prompts say apart from the phrase, and how the answers relate to it."""

    unlike: float  # distance of two prompts without what they share (1: disjoint) that nine of ten pairs exceed
    own_share: float  # median share of a prompt's information that is its own
    own_rare: float  # median nats of the words that are its own and that few prompts of the corpus hold
    bodies_unlike: float  # the same distance of answers, without the words that most of them share
    n_answers: int  # different answers in the sample
    echoed: float  # share of answers that repeat a word of the phrase
    copied: float  # share of answers whose every word stands in the prompt


def examine(exchanges: list[Exchange], phrase: Hashes, counts: PromptCounts, n_counted: int) -> Content:
    """Compares the prompts, and the answers, of a sample of exchanges that share ``phrase`` (token hashes)."""
    phrase = np.unique(phrase)
    prompts = [_words(e.prompt, e.prompt_kinds) for e in exchanges]
    values, seen = np.unique(np.concatenate(prompts), return_counts=True)
    shared = values[seen > _COMMON * len(exchanges)]
    own, share, rare = [], [], []
    for words in prompts:
        information = _information(words, counts, n_counted)
        mine = ~_among(words, shared) & ~_among(words, phrase)
        own.append((words[mine], information[mine]))
        share.append(float(information[mine].sum() / max(information.sum(), 1e-9)))
        rare.append(float(information[mine & (information > _RARE)].sum()))
    answers = [_words(e.answer, e.answer_kinds) for e in exchanges]
    said, times = np.unique(np.concatenate(answers), return_counts=True)
    fixed = said[times > _COMMON * len(exchanges)]
    bodies = [(body, np.ones(len(body))) for body in (words[~_among(words, fixed)] for words in answers)]
    names = phrase[_information(phrase, counts, n_counted) > 1.0]  # nats: not a word that a third of prompts hold
    return Content(
        unlike=_distance(own),
        own_share=float(np.median(share)),
        own_rare=float(np.median(rare)),
        bodies_unlike=_distance(bodies),
        n_answers=len({words.tobytes() for words in answers}),
        echoed=float(np.mean([bool(_among(words, names).any()) for words in answers])),
        copied=float(np.mean([bool(_among(a, p).all()) for a, p in zip(answers, prompts, strict=True)])),
    )


def _words(hashes: Hashes, kinds: NDArray[np.uint8]) -> Hashes:
    """The distinct words and characters."""
    return np.unique(hashes[(kinds == WORD) | (kinds == CHARACTER)])


def _among(words: Hashes, known: Hashes) -> NDArray[np.bool_]:
    """Which of the words are known; both ascend, which makes this several times quicker than ``np.isin`` on bags."""
    if not len(known):
        return np.zeros(len(words), np.bool_)
    at = np.searchsorted(known, words)
    at[at == len(known)] = 0
    return np.asarray(known[at] == words)


def _information(words: Hashes, counts: PromptCounts, n_counted: int) -> Floats:
    """Nats: minus the log of the share of prompts that hold each word."""
    held = np.maximum(counts.of(ngram_kernel.unigrams(np.ascontiguousarray(words))).astype(np.float64), 1.0)
    return np.asarray(np.maximum(np.log(n_counted / held), 0.0))


def _distance(bags: list[tuple[Hashes, Floats]]) -> float:
    """The tenth percentile over pairs of 1 - weighted Jaccard; 0 for fewer than two."""
    n = len(bags)
    found = []
    for k in range(min(_N_PAIRS, n * (n - 1) // 2)):
        a, b = k % n, (k % n + 1 + k // n) % n
        (words, weights), (others, other_weights) = bags[a], bags[b]
        both = float(weights[_among(words, others)].sum())
        either = float(weights.sum() + other_weights.sum()) - both
        found.append(1 - both / either if either > 0 else 0.0)
    return float(np.quantile(found, _QUANTILE)) if found else 0.0
