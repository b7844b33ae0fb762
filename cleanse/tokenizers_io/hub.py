"""The tokenizer files of a repository on the Hugging Face hub, and nothing else of it."""

from __future__ import annotations

import re
from pathlib import Path

from cleanse.tokenizers_io.loaded import TokenizerError

_FILES = [
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.j*"),
    *("additional_chat_templates/*.jinja", "tokenizer.model", "spiece.model", "tekken.json", "*.tiktoken"),
]
_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")


def download(repository: str) -> Path:
    """A local folder with the tokenizer files of ``owner/name`` or ``owner/name@revision``.

    Raises:
        TokenizerError: no such path and no such repository, or the hub cannot be reached.
    """
    if not _ID.fullmatch(repository):
        raise TokenizerError(f"no tokenizer at {repository}: no such file or folder, and not a hub id (owner/name)")
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - heavy, and rarely needed

    name, _, revision = repository.partition("@")
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=_FILES))
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TokenizerError(
            f"no tokenizer at {repository}: no such file or folder here, and the hub gave none ({reason}). "
            "Give a folder or a tokenizer file, or an id such as owner/name"
        ) from error
