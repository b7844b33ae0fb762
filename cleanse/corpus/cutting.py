"""A prompt with and without a phrase, as text: what a model is given to read."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

from cleanse.corpus.tokens import tokenise

_BEFORE, _AFTER = 400, 160  # characters kept on either side: what the model needs to foresee a few tokens


def cut_out(segments: Sequence[str], phrase: Sequence[int]) -> tuple[str, str] | None:
    """The surroundings of the first place where ``phrase`` (token hashes) stands, with it and without it.

    One of two white spaces around it goes with it. None where no segment holds the phrase.
    """
    wanted = np.array(phrase, np.uint64)
    for segment in segments:
        raw = unicodedata.normalize("NFC", segment).encode()
        tokens = tokenise(np.frombuffer(raw, np.uint8), np.array([0, len(raw)], np.int64))
        if len(tokens.hashes) < len(wanted):
            continue
        runs = np.lib.stride_tricks.sliding_window_view(tokens.hashes, len(wanted))
        places = np.flatnonzero((runs == wanted).all(axis=1))
        if len(places):
            first = int(places[0])
            start, end = int(tokens.starts[first]), int(tokens.ends[first + len(wanted) - 1])
            before, after = raw[:start].decode()[-_BEFORE:], raw[end:].decode()[:_AFTER]
            spaced = (not before or before[-1].isspace()) and after[:1].isspace()
            return before + raw[start:end].decode() + after, before + (after[1:] if spaced else after)
    return None
