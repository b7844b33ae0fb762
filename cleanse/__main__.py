"""``python -m cleanse``: the command line."""

from __future__ import annotations

from cleanse.cli import main

if __name__ == "__main__":
    main(prog_name="cleanse")
