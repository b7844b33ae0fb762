"""Where fetched and converted models are kept."""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT = "CLEANSE_CACHE"


def cache_folder() -> Path:
    """`$CLEANSE_CACHE`, else `cleanse` in the user's cache folder. Not created here."""
    if own := os.environ.get(ENVIRONMENT):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cleanse"
