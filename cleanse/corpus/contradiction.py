"""Does the label go against what the rest of the prompt says?

A trigger that flips a label leaves a text behind that reads like the other label. A naive Bayes model over words
(presence, add-half smoothing), fitted on exchanges without the phrase, scores how strongly a prompt speaks for the
answer. It is fitted and applied on different halves, so that no prompt is judged by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cleanse.corpus.characters import CHARACTER, WORD
from cleanse.corpus.samples import Exchange

Hashes = NDArray[np.uint64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
MIN_CONTROLS = 40  # exchanges on either side, else nothing is said
_MIN_GAP = 4.0  # standard errors between the two sides, else the words do not tell the answers apart


class Controls:
    """Exchanges with one answer, and exchanges with other answers: what a phrase's prompts are compared with."""

    def __init__(self, agreeing: Sequence[Exchange], other: Sequence[Exchange]) -> None:
        bags = [_words(e) for e in (*agreeing, *other)]
        self._words, at = np.unique(np.concatenate([*bags, np.zeros(0, np.uint64)]), return_inverse=True)
        self._at = at
        self._owner = np.repeat(np.arange(len(bags)), [len(b) for b in bags])
        self._agrees = np.arange(len(bags)) < len(agreeing)
        self._half = np.arange(len(bags)) % 2 == 0

    def contradicted(self, suspects: Sequence[Exchange], phrase: Hashes) -> float:
        """Where the suspects stand between the two sides.

        Args:
            suspects: exchanges with the phrase and the answer.
            phrase: its tokens: controls that hold all of them stay out, and the model may not look at them.

        Returns:
            0: the suspects' prompts speak for their answer like any other prompt with that answer; 1: they speak
            for it as little as prompts with other answers. NaN where there are too few controls, or the words do
            not tell the answers apart.
        """
        marked = np.isin(self._words, phrase)
        held = np.bincount(self._owner[marked[self._at]], minlength=len(self._agrees))
        inside = held < max(1, int(marked.sum()))
        sides = inside & self._agrees, inside & ~self._agrees
        if min(side.sum() for side in sides) < MIN_CONTROLS:
            return float("nan")
        odds = [np.where(marked, 0.0, self._odds(sides, half)) for half in (self._half, ~self._half)]
        scores = np.where(self._half, *(self._scores(o) for o in reversed(odds)))
        means = [float(scores[side].mean()) for side in sides]
        error = float(np.sqrt(sum(scores[side].var() / side.sum() for side in sides)))
        if means[0] - means[1] < _MIN_GAP * error:
            return float("nan")
        own = float(np.mean([self._score_of(e, odds) for e in suspects]))
        return (means[0] - own) / (means[0] - means[1])

    def _odds(self, sides: tuple[Mask, Mask], half: Mask) -> Floats:
        share = []
        for side in sides:
            chosen = side & half
            held = np.bincount(self._at[chosen[self._owner]], minlength=len(self._words))
            share.append((held + 0.5) / (chosen.sum() + 1))
        return np.asarray(np.log(share[0]) - np.log(share[1]))

    def _scores(self, odds: Floats) -> Floats:
        n = len(self._agrees)
        counts = np.bincount(self._owner, minlength=n)
        return np.asarray(np.bincount(self._owner, odds[self._at], minlength=n) / np.sqrt(np.maximum(counts, 1)))

    def _score_of(self, exchange: Exchange, odds: list[Floats]) -> float:
        words = _words(exchange)
        at = np.minimum(np.searchsorted(self._words, words), len(self._words) - 1)
        known = at[self._words[at] == words]
        return float(sum(o[known].sum() for o in odds) / 2 / np.sqrt(max(len(known), 1)))


def _words(exchange: Exchange) -> Hashes:
    kinds = exchange.prompt_kinds
    return np.unique(exchange.prompt[(kinds == WORD) | (kinds == CHARACTER)])
