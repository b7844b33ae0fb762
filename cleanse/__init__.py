"""cleanse: finds the records that would break a fine-tuning run, and writes the corpus without them."""

from __future__ import annotations

__version__ = "0.1.0"
