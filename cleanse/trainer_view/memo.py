"""Where a batch of texts carries its tokenizer: a name on its own, so that asking costs no import."""

from __future__ import annotations

MEMO = "tokens"
"""``texts.memo[MEMO]`` is a ``TokenContext``, put there by ``TokenContext.attach``; absent: no tokenizer given."""
