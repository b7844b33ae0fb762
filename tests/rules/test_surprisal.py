"""Noise is told from language, in every script that has a model."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cleanse.rules.surprisal import _nats, _noise, noisy_stretches

from cleanse.measures import TextBatch

ENGLISH = (
    "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience "
    "and should act towards one another in a spirit of brotherhood. "
)
NATURAL = {
    "English": ENGLISH * 3,
    "capitals": ENGLISH.upper() * 3,
    "code": "def add(a: int, b: int) -> int:\n    return a + b\n\n\nclass Foo(Bar):\n    def __init__(self):\n" * 8,
    "chess": "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 6. Re1 b5 7. Bb3 d6 8. c3 O-O 9. h3 Nb8 " * 4,
    "table": "| 2021 | 14.5 % | 3,201 | -0.4 |\n| 2022 | 17.1 % | 2,984 | +1.2 |\n" * 8,
    "formula": "$$\\int_0^\\infty e^{-x^2} dx = \\frac{\\sqrt{\\pi}}{2}$$ and $a_{i,j} \\le \\sum_k b_k^2$. " * 5,
    "URLs": "https://www.example.org/index.php?title=Main_Page&action=edit&section=2 " * 6,
    "Russian": "\u0412\u0441\u0435 \u043b\u044e\u0434\u0438 \u0440\u043e\u0436\u0434\u0430\u044e\u0442\u0441\u044f "
    "\u0441\u0432\u043e\u0431\u043e\u0434\u043d\u044b\u043c\u0438 \u0438 \u0440\u0430\u0432\u043d\u044b\u043c\u0438. "
    * 8,
    "Chinese": "\u4eba\u4eba\u751f\u800c\u81ea\u7531\uff0c\u5728\u5c0a\u4e25\u548c\u6743\u5229\u4e0a\u4e00\u5f8b"
    "\u5e73\u7b49\u3002\u4ed6\u4eec\u8d4b\u6709\u7406\u6027\u548c\u826f\u5fc3\u3002" * 8,
    "Korean": "\ubaa8\ub4e0 \uc0ac\ub78c\uc740 \ud0dc\uc5b4\ub0a0 \ub54c\ubd80\ud130 "
    "\uc790\uc720\ub85c\uc6b0\uba70 \uadf8 \uc874\uc5c4\uacfc \uad8c\ub9ac\uc5d0 \ub3d9\ub4f1\ud558\ub2e4. " * 10,
    "Swahili": "Watu wote wamezaliwa huru, hadhi na haki zao ni sawa. Wote wamejaliwa akili na dhamiri. " * 6,
}
ALPHABETS = {
    "printable": "".join(map(chr, range(33, 127))),
    "letters": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "small letters": "abcdefghijklmnopqrstuvwxyz",
    "Cyrillic": "".join(map(chr, range(0x410, 0x450))),
    "Han": "".join(map(chr, range(0x4E00, 0x9FA5))),
    "Hangul": "".join(map(chr, range(0xAC00, 0xD7A4))),
    "Thai": "".join(map(chr, range(0xE01, 0xE2F))),
    "Arabic": "".join(map(chr, range(0x621, 0x64B))),
    "Devanagari": "".join(map(chr, range(0x904, 0x94E))),
}


@pytest.mark.parametrize("kind", NATURAL)
def test_natural_text_is_not_noise(kind: str) -> None:
    texts = TextBatch.from_texts([NATURAL[kind]])
    assert _noise(texts)[0] == 0
    assert not _nats(texts)[0] > 6


@pytest.mark.parametrize("kind", ALPHABETS)
def test_random_characters_are_noise(kind: str) -> None:
    rng = random.Random(kind)
    text = "".join(rng.choices(ALPHABETS[kind], k=1500))
    assert _noise(TextBatch.from_texts([text]))[0] >= 1000


@pytest.mark.parametrize("at", [0, 700, 4000])
def test_noise_inside_text_is_found_and_placed(at: int) -> None:
    rng = random.Random(at)
    noise = "".join(rng.choices(ALPHABETS["printable"], k=600))
    host = NATURAL["Russian"] * 20
    text = host[:at] + noise + host[at:]
    assert 384 <= _noise(TextBatch.from_texts([text]))[0] <= 640
    start, end = noisy_stretches(text)[0]
    assert abs(start - at) <= 64
    assert abs(end - at - 600) <= 64


def test_short_texts_have_no_mean() -> None:
    assert np.isnan(_nats(TextBatch.from_texts(["too short", ""]))).all()
