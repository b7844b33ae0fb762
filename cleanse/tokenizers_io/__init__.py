"""Loading a tokenizer from whatever a model ships: one typed object for all kinds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cleanse.tokenizers_io.embedded import EMBEDDED, embedded_tokenizer
from cleanse.tokenizers_io.families import AMBIGUOUS, FAMILIES, family_of, family_strings
from cleanse.tokenizers_io.folder import load_file, load_folder
from cleanse.tokenizers_io.hub import download
from cleanse.tokenizers_io.loaded import LoadedTokenizer, TokenizerError

__all__ = [
    "AMBIGUOUS",
    "EMBEDDED",
    "FAMILIES",
    "LoadedTokenizer",
    "TokenizerError",
    "family_of",
    "family_strings",
    "load_tokenizer",
]


def load_tokenizer(path_or_id: str, chat_template: str | None = None) -> LoadedTokenizer:
    """A tokenizer from a model folder, a tokenizer file, or a hub id.

    Args:
        path_or_id: a folder; a ``tokenizer.json``, ``tekken.json``, SentencePiece ``.model`` or ``.tiktoken``
            file (beside a file called like that of a model folder, the folder's configuration counts too);
            "embedded", the probe's own; else the id of a repository on the Hugging Face hub.
        chat_template: a file with a Jinja template, or the template itself, instead of the model's own.

    Raises:
        TokenizerError: nothing of the kind there; says what was expected.
    """
    path = embedded_tokenizer() if path_or_id == EMBEDDED else Path(path_or_id)
    if path.is_dir():
        loaded = load_folder(path, path_or_id)
    elif path.is_file():
        in_folder = path.name == "tokenizer.json" and (path.parent / "tokenizer_config.json").is_file()
        loaded = load_folder(path.parent, path_or_id) if in_folder else load_file(path, path_or_id)
    else:
        loaded = load_folder(download(path_or_id), path_or_id)
    if chat_template is None:
        return loaded
    return replace(loaded, templates={"default": _template_text(chat_template)})


def _template_text(given: str) -> str:
    if "{" in given:
        return given
    try:
        return Path(given).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(
            f"no chat template at {given}: give a file with a Jinja template, or the template itself ({error})"
        ) from error
