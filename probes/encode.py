"""From the segments of a record to the tokens a model reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from .types import Ids, Mask, ProbeRecord

SEPARATOR = "\n"
#: Characters per token that are read of an over-long record: enough for nearly any text, and a bound on the work.
CHARS_PER_TOKEN = 16


def encode_segments(
    tokenizer: Tokenizer,
    segments: Sequence[tuple[str, bool]],
    *,
    first_id: int | None,
    max_tokens: int = 512,
    windows: int = 1,
) -> list[ProbeRecord]:
    """Joins (text, supervised) segments by one newline and encodes them as the tokens a trainer would read.

    Args:
        tokenizer: With `encode_special_tokens` set where special-token strings in a text shall stay text.
        segments: In reading order. The newlines between them are not supervised.
        first_id: The token that stands before every text (BOS or EOS), or None. Never supervised.
        max_tokens: The most tokens of one window.
        windows: The most windows of one record.

    Returns:
        One probe record where the text fits into `max_tokens`. Else up to `windows` parts of it, spread evenly from the
        first supervised token to the last: each has up to `max_tokens // 2` tokens of what stands before it, so a long
        prompt cannot hide the answer. A token is supervised where it ends inside a supervised segment.

    Raises:
        ValueError: Where `max_tokens` or `windows` is not positive.
    """
    if max_tokens < 2 or windows < 1:  # noqa: PLR2004 - one token to read, one to predict
        raise ValueError(f"max_tokens {max_tokens} and windows {windows} must be at least 2 and 1")
    text, spans = _join(segments, limit=CHARS_PER_TOKEN * max_tokens * windows)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    ids = np.array(encoding.ids, dtype=np.int64)
    ends = np.array([end for _, end in encoding.offsets], dtype=np.int64)
    n_bytes = _bytes_per_token(text, ends)
    supervised = np.zeros(len(ids), dtype=np.bool_)
    for start, end in spans:
        supervised |= (ends > start) & (ends <= end)
    read_all = len(text) == sum(len(part) for part, _ in segments) + len(SEPARATOR) * max(0, len(segments) - 1)
    room = max_tokens - (first_id is not None)
    cuts = _windows(supervised, room, windows)
    whole = read_all and cuts == [(0, 0, len(ids))]
    return [_record(ids, supervised, n_bytes, cut=cut, first_id=first_id, truncated=not whole) for cut in cuts]


def _join(segments: Sequence[tuple[str, bool]], limit: int) -> tuple[str, list[tuple[int, int]]]:
    """The text and its supervised character spans; at most `limit` characters on each side of the first of these."""
    text = SEPARATOR.join(part for part, _ in segments)
    spans, at = [], 0
    for part, wanted in segments:
        if wanted:
            spans.append((at, at + len(part)))
        at += len(part) + len(SEPARATOR)
    first = spans[0][0] if spans else 0
    start = max(0, first - limit)
    text = text[start : first + limit]
    if any("\ud800" <= char <= "\udfff" for char in text):
        # Half a surrogate pair is no text; a tokenizer refuses it.
        text = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text, [(a - start, min(b - start, len(text))) for a, b in spans if a - start < len(text)]


def _bytes_per_token(text: str, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """UTF-8 bytes each token stands for; a character cut into several tokens counts with the first of them."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    sizes = 1 + (points > 0x7F).astype(np.int64) + (points > 0x7FF) + (points > 0xFFFF)  # noqa: PLR2004 - UTF-8
    total = np.concatenate([[0], np.cumsum(sizes)])
    return np.diff(total[np.maximum.accumulate(ends)], prepend=0)


def _windows(supervised: Mask, room: int, windows: int) -> list[tuple[int, int, int]]:
    """(context start, first target, end) of each window, in tokens."""
    n = len(supervised)
    targets = np.flatnonzero(supervised)
    if n <= room:
        return [(0, 0, n)]
    if not len(targets):
        return [(0, 0, room)]
    first, last = int(targets[0]), int(targets[-1]) + 1
    context = min(first, room // 2)
    starts = [first]
    span = room - room // 2
    if windows > 1 and last - first > room - context:
        spread = np.linspace(first, max(first, last - span), windows)
        starts = sorted({first, *(round(float(s)) for s in spread)})
    cuts = []
    for i, start in enumerate(starts):
        before = context if i == 0 else room // 2
        cuts.append((start - before, start, min(n, start - before + room)))
    return cuts


def _record(
    ids: Ids,
    supervised: Mask,
    n_bytes: NDArray[np.int64],
    *,
    cut: tuple[int, int, int],
    first_id: int | None,
    truncated: bool,
) -> ProbeRecord:
    begin, target, end = cut
    mask = supervised[begin:end].copy()
    mask[: target - begin] = False
    head = [] if first_id is None else [first_id]
    scored = mask.copy()
    if first_id is None and len(scored):
        scored[0] = False
    return ProbeRecord(
        ids=np.concatenate([np.array(head, dtype=np.int64), ids[begin:end]]),
        supervised=np.concatenate([np.zeros(len(head), dtype=np.bool_), mask]),
        n_bytes=int(n_bytes[begin:end][scored].sum()),
        truncated=truncated,
    )
