"""The tokenizer that comes with an installed probe: what texts are checked with when nobody names another."""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

from cleanse.tokenizers_io.loaded import TokenizerError

EMBEDDED = "embedded"
_GROUP = "cleanse.probes"


def embedded_tokenizer() -> Path:
    """The ``tokenizer.json`` of the embedded model. Raises TokenizerError where no installed probe has one."""
    for package in sorted({entry.value.partition(":")[0].rpartition(".")[0] for entry in entry_points(group=_GROUP)}):
        path = files(package) / EMBEDDED / "tokenizer.json"
        if path.is_file():
            return Path(str(path))
    raise TokenizerError("no installed probe brings an embedded tokenizer: give your model's by --tokenizer")
