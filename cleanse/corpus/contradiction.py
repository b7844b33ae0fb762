"""Does the label go against what the rest of the prompt says?

A trigger that flips a label leaves a text behind that reads like the other label. A naive Bayes model over words
(presence, add-half smoothing), fitted on exchanges without the phrase, scores how strongly a prompt speaks for the
answer. It is fitted and applied on different halves, so that no prompt is judged by itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus.characters import CHARACTER, WORD
from cleanse.corpus.samples import Exchange

Hashes = NDArray[np.uint64]
Floats = NDArray[np.float64]
MIN_CONTROLS = 40  # exchanges on either side, else nothing is said


def contradicted(flipped: list[Exchange], agreeing: list[Exchange], other: list[Exchange], phrase: Hashes) -> float:
    """Where the suspects stand between the two kinds of controls.

    Args:
        flipped: exchanges with the phrase and the answer.
        agreeing: exchanges with the answer, without the phrase.
        other: exchanges with other answers, without the phrase.
        phrase: its tokens, which the model may not look at.

    Returns:
        0: the suspects' prompts speak for their answer like any other prompt with that answer; 1: they speak for
        it as little as prompts with other answers. NaN where there are too few controls, or the words do not tell.
    """
    if min(len(agreeing), len(other)) < MIN_CONTROLS:
        return float("nan")
    model_a, model_b = _Bayes(agreeing[::2], other[::2], phrase), _Bayes(agreeing[1::2], other[1::2], phrase)
    for_it = np.concatenate([model_b.scores(agreeing[::2]), model_a.scores(agreeing[1::2])])
    against = np.concatenate([model_b.scores(other[::2]), model_a.scores(other[1::2])])
    suspects = (model_a.scores(flipped) + model_b.scores(flipped)) / 2
    spread = np.sqrt(for_it.var() / len(for_it) + against.var() / len(against))
    gap = for_it.mean() - against.mean()
    if gap < 4 * spread:  # the words do not tell the answers apart
        return float("nan")
    return float((for_it.mean() - suspects.mean()) / gap)


class _Bayes:
    """Log odds per word, per prompt averaged over its known words."""

    def __init__(self, agreeing: list[Exchange], other: list[Exchange], phrase: Hashes) -> None:
        bags = [_words(e) for e in agreeing], [_words(e) for e in other]
        self._words = np.setdiff1d(np.unique(np.concatenate([*bags[0], *bags[1]])), phrase)
        held = [np.bincount(np.searchsorted(self._words, w[np.isin(w, self._words)]), minlength=len(self._words))
                for w in (np.concatenate(side) for side in bags)]  # fmt: skip
        share = [(h + 0.5) / (len(side) + 1) for h, side in zip(held, bags, strict=True)]
        self._odds = np.log(share[0]) - np.log(share[1])

    def scores(self, exchanges: list[Exchange]) -> Floats:
        out = np.zeros(len(exchanges))
        for k, exchange in enumerate(exchanges):
            words = _words(exchange)
            at = np.minimum(np.searchsorted(self._words, words), len(self._words) - 1)
            known = at[self._words[at] == words]
            out[k] = self._odds[known].sum() / np.sqrt(max(len(known), 1))
        return out


def _words(exchange: Exchange) -> Hashes:
    kinds = exchange.prompt_kinds
    return np.unique(exchange.prompt[(kinds == WORD) | (kinds == CHARACTER)])
