"""What the tokenizer and the trainer will see of the data, told before training.

The names are loaded when asked for: a scan without a tokenizer imports neither numba nor tokenizers from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cleanse.trainer_view.memo import MEMO

if TYPE_CHECKING:
    from cleanse.trainer_view.context import TokenBatch, TokenContext, TokenSource
    from cleanse.trainer_view.prepared import Prepared, Trainer
    from cleanse.trainer_view.settings import TRAINERS, TrainerSettings
    from cleanse.trainer_view.template import ChatTemplate, TemplateRefusedError

__all__ = [
    "MEMO",
    "TRAINERS",
    "ChatTemplate",
    "Prepared",
    "TemplateRefusedError",
    "TokenBatch",
    "TokenContext",
    "TokenSource",
    "Trainer",
    "TrainerSettings",
]

_HOMES = {
    "TokenBatch": "context",
    "TokenContext": "context",
    "TokenSource": "context",
    "Prepared": "prepared",
    "Trainer": "prepared",
    "TRAINERS": "settings",
    "TrainerSettings": "settings",
    "ChatTemplate": "template",
    "TemplateRefusedError": "template",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
