"""Where a page that is made from the code is written."""

from __future__ import annotations

import sys
from pathlib import Path


def write(text: str, target: Path) -> None:
    """Writes a page where the first argument of the command says, or to ``target``."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else target
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    print(f"wrote {target}")
