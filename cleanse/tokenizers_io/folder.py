"""A model folder: tokenizer files, ``tokenizer_config.json``, special tokens, chat templates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from tokenizers import AddedToken, Tokenizer, processors

from cleanse.tokenizers_io.loaded import LoadedTokenizer, TokenizerError
from cleanse.tokenizers_io.ranks import load_tekken, load_tiktoken
from cleanse.tokenizers_io.sentencepiece import load_sentencepiece

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

_FILES = ("tokenizer.json", "tekken.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
_MAX_CONFIG_BYTES = 64 << 20
_NO_LIMIT = 1 << 40  # transformers writes 1e30 for "no limit"


def load_tokenizer_json(path: Path, source: str) -> LoadedTokenizer:
    """A ``tokenizer.json`` on its own. Raises TokenizerError where it is none."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        raise TokenizerError(f"{source} is not a tokenizer.json: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return LoadedTokenizer(tokenizer, source)


def load_folder(folder: Path, source: str) -> LoadedTokenizer:
    """A model folder, as transformers would take it.

    Raises:
        TokenizerError: no tokenizer file in it, or one that cannot be read.
    """
    known = [folder / name for name in _FILES] + sorted(folder.glob("*.tiktoken"))
    path = next((p for p in known if p.is_file()), None)
    if path is None:
        raise TokenizerError(f"{source} has none of the files of a tokenizer: {', '.join(_FILES)}, *.tiktoken")
    loaded = load_file(path, source)
    config = _json(folder / "tokenizer_config.json")
    more = _json(folder / "special_tokens_map.json")
    named = {**loaded.named, **_named(more), **_named(config)}
    _add_tokens(loaded.tokenizer, config, named)
    _set_ends(loaded.tokenizer, config, named)
    limit = config.get("model_max_length")
    return replace(
        loaded,
        named=named,
        templates=_templates(folder, config),
        model_max_length=int(limit) if isinstance(limit, (int, float)) and 0 < limit < _NO_LIMIT else None,
    )


def load_file(path: Path, source: str) -> LoadedTokenizer:
    """One tokenizer file of any known kind, told by its name and first bytes. Raises TokenizerError."""
    if path.suffix == ".tiktoken":
        return load_tiktoken(path, source)
    if path.suffix == ".json":
        is_tekken = path.name.startswith("tekken") or b'"token_bytes"' in _start(path)
        return load_tekken(path, source) if is_tekken else load_tokenizer_json(path, source)
    start = _start(path)
    if start[:1] == b"{":
        return load_tokenizer_json(path, source)
    first = start.split(b"\n", 1)[0].split()
    is_ranks = len(first) == 2 and first[1].isdigit()  # noqa: PLR2004 - Llama 3 calls its ranks tokenizer.model
    return load_tiktoken(path, source) if is_ranks else load_sentencepiece(path, source)


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.stat().st_size > _MAX_CONFIG_BYTES:
        return {}
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise TokenizerError(f"{path} is not JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _text(token: Any) -> str | None:
    """A token as configurations write it: a string, or an object with its content."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) and content else None


def _named(config: dict[str, Any]) -> dict[str, str]:
    return {name: text for name in NAMED if (text := _text(config.get(name))) is not None}


def _templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Templates from ``chat_template.jinja`` and its folder of named ones, else from the configuration."""
    found: dict[str, str] = {}
    given = config.get("chat_template")
    if isinstance(given, str):
        found["default"] = given
    elif isinstance(given, list):
        found.update(
            (entry["name"], entry["template"])
            for entry in given
            if isinstance(entry, dict) and {"name", "template"} <= entry.keys()
        )
    legacy = _json(folder / "chat_template.json").get("chat_template")
    if isinstance(legacy, str):
        found["default"] = legacy
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = path.read_text("utf-8")
    single = folder / "chat_template.jinja"
    if single.is_file():
        found["default"] = single.read_text("utf-8")
    return found


def _add_tokens(tokenizer: Tokenizer, config: dict[str, Any], named: dict[str, str]) -> None:
    """Adds what the configuration lists and the tokenizer file lacks, in the configuration's order."""
    listed = config.get("added_tokens_decoder")
    entries = listed.items() if isinstance(listed, dict) else ()
    for _, entry in sorted(entries, key=lambda item: int(item[0])):
        text = _text(entry)
        if text is not None and tokenizer.token_to_id(text) is None:
            flags = {k: bool(entry.get(k)) for k in ("lstrip", "rstrip", "normalized", "single_word", "special")}
            tokenizer.add_tokens([AddedToken(text, **flags)])
    extra = config.get("extra_special_tokens", config.get("additional_special_tokens")) or []
    for token in [*named.values(), *(extra.values() if isinstance(extra, dict) else extra)]:
        text = _text(token)
        if text is not None:
            tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True)])


def _set_ends(tokenizer: Tokenizer, config: dict[str, Any], named: dict[str, str]) -> None:
    """Whether a plain text gets BOS and EOS, where the configuration says so (transformers does the same)."""
    if "add_bos_token" not in config and "add_eos_token" not in config:
        return
    bos = named.get("bos_token") if config.get("add_bos_token") else None
    eos = named.get("eos_token") if config.get("add_eos_token") else None
    ids = [(token, tokenizer.token_to_id(token)) for token in (bos, eos) if token is not None]
    single = " ".join(part for part in (bos and f"{bos}:0", "$A:0", eos and f"{eos}:0") if part)
    pair = " ".join(part for part in (single, bos and f"{bos}:1", "$B:1", eos and f"{eos}:1") if part)
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
