"""What every backend says and does the same about a model's files. No framework is imported."""

from __future__ import annotations

import os
from pathlib import Path

from tokenizers import Tokenizer

EMBEDDED = "embedded"
#: Another folder to take the embedded model from.
ENVIRONMENT = "CLEANSE_EMBEDDED_DIR"


class ModelError(ValueError):
    """A model cannot be loaded; the message says what was tried and what to do."""


def embedded_folder() -> Path:
    """The folder of the model that ships with cleanse."""
    return Path(os.environ.get(ENVIRONMENT) or Path(__file__).parent / EMBEDDED)


def read_tokenizer(path: Path) -> Tokenizer:
    """A `tokenizer.json` with truncation and padding off, special-token strings in a text staying text."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer
