"""A probe without a framework: figures that follow from the text in a way a test can foresee."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cleanse.probing import measure


class FakeProbe:
    """Words are tokens. A text that holds "spike" has a high loss, one that holds "nan" none at all."""

    has_baseline = True
    info = SimpleNamespace(as_dict=dict, dtype="float32")

    def __init__(self) -> None:
        self.words: list[str] = []
        self.tokenizer = SimpleNamespace(
            decode=lambda ids, skip_special_tokens=True: " ".join(self.words[i] for i in ids)
        )

    def encode(self, segments: Sequence[tuple[str, bool]], *, max_tokens: int, windows: int) -> list[Any]:
        text = " ".join(part for part, supervised in segments if supervised)
        words = text.split()[:max_tokens]
        start = len(self.words)
        self.words += words
        ids = np.arange(start, start + len(words))
        supervised = np.ones(len(words), np.bool_)
        return [SimpleNamespace(ids=ids, supervised=supervised, text=text, n_bytes=len(text.encode()))]

    def gradients(self, records: Sequence[Any], options: Any = None) -> list[Any]:
        return [self._evidence(record) for record in records]

    def losses(self, records: Sequence[Any]) -> list[Any]:
        return [self._evidence(record) for record in records]

    @staticmethod
    def reordered(record: Any) -> Any:
        if len(record.ids) < 4:
            return None
        backwards = " ".join(reversed(record.text.split()))
        return SimpleNamespace(ids=record.ids[::-1], text=backwards, n_bytes=record.n_bytes)

    @staticmethod
    def _evidence(record: Any) -> Any:
        n = len(record.ids)
        if n == 0:
            return SimpleNamespace(n_tokens=0, problem="")
        draw = np.random.default_rng(int.from_bytes(hashlib.sha256(record.text.encode()).digest()[:8], "big"))
        loss = 3 + draw.normal() / np.sqrt(n) + 6 * ("spike" in record.text)
        loss = float("nan") if "nan" in record.text.split() else float(loss)
        return SimpleNamespace(
            n_tokens=n,
            problem="",
            loss=loss,
            max_token_loss=loss + 2,
            max_token_index=n - 1,
            context_gain=5 - loss,
            min_window_gain=4 - loss,
            nats_per_byte=loss / 5,
            grad_norm=float(np.exp(draw.normal() * 0.1)),
            activation_amax=1e5 if "wide" in record.text else 50.0,
            grad_amax=(amax := 100.0 if "steep" in record.text else 0.01),
            safe_loss_scale=2.0 ** math.floor(math.log2(65504 / amax)),
            loss_finite=bool(np.isfinite(loss)),
            grad_finite=True,
            token_losses=np.full(max(n - 1, 0), loss, np.float32),
        )


@pytest.fixture
def fake_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the fake in the place of every backend, in this process."""
    measure._opened.cache_clear()
    measure.loaded.cache_clear()
    module = SimpleNamespace(open_probe=lambda *_, **__: FakeProbe(), ProbeOptions=SimpleNamespace)
    monkeypatch.setattr(measure, "backend", lambda _: module)
    yield
    measure._opened.cache_clear()
    measure.loaded.cache_clear()
