"""The repairs that the built-in packs name. Each is idempotent and changes nothing but the damage."""

from __future__ import annotations

import re

import regex

from cleanse.repairs import Repair, register

from . import locate
from .misread import mend_misread

_OVERSTRIKE = re.compile(r"([^\x08\n])\x08\1|_\x08(?=[^\x08\n])")  # a terminal's bold and underlined letters
_ANSI = re.compile(r"\x1b\[(?:[0-9;?]+[A-HJKSTfhlmnsu]|[mKJH](?![A-Za-z]))")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_ZERO_WIDTH = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200d\u2060-\u2064\u3164\ufeff\uffa0]")
_BIDI = regex.compile(r"[\u202a-\u202c\u2066-\u2069]")
_BIDI_OVERRIDES = re.compile("[\u202d\u202e]")


def strip_controls(text: str) -> str:
    """Terminal sequences, overstrikes and control characters go; tab, line ends and form feed stay."""
    text = _ANSI.sub("", text)
    text = _OVERSTRIKE.sub(lambda m: m.group(1) or "", text)
    return _CONTROLS.sub("", text)


def _is_needless(text: str, at: int) -> bool:
    return locate.is_stray(text, at) or (at == 0 and text[0] == "\ufeff")


def strip_zero_width(text: str) -> str:
    """Zero-width characters go where script and neighbours do not explain them; the others stay."""
    while True:  # a run of them hides the real neighbours from each other
        kept = _ZERO_WIDTH.sub(lambda m: "" if _is_needless(m.string, m.start()) else m.group(), text)
        if kept == text:
            return text
        text = kept


def strip_bom(text: str) -> str:
    """Byte order marks at the start go."""
    return text.lstrip("\ufeff")


def strip_bidi(text: str) -> str:
    """Embeddings, isolates and overrides go; the marks LRM, RLM and ALM stay."""
    return _BIDI_OVERRIDES.sub("", _BIDI.sub("", text))


register(Repair("strip_controls", strip_controls.__doc__ or "", strip_controls))
register(Repair("strip_zero_width", strip_zero_width.__doc__ or "", strip_zero_width))
register(Repair("strip_bom", strip_bom.__doc__ or "", strip_bom))
register(Repair("strip_bidi", strip_bidi.__doc__ or "", strip_bidi))
register(Repair("ftfy", mend_misread.__doc__ or "", mend_misread))
