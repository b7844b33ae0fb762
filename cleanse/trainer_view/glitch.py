"""Under-trained ("glitch") tokens: from a list, or from a model's embedding matrix.

The indicator is that of "Fishing for Magikarp" (Land and Bartolo, EMNLP 2024): rows that training never touched
lie close together, because they only shrink under weight decay. Rows of tokens that cannot occur in any UTF-8
text (bytes 0xC0, 0xC1, 0xF5 to 0xFF, and ids beyond the tokenizer's) show where that is; a row as close to their
mean as they are themselves was hardly trained.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cleanse.tokenizers_io import LoadedTokenizer, TokenizerError

_NAMES = ("lm_head.weight", "model.embed_tokens.weight", "transformer.wte.weight", "embed_tokens.weight")
_IMPOSSIBLE_BYTES = (0xC0, 0xC1, *range(0xF5, 0x100))
_FEWEST = 3  # reference rows below which nothing can be said
_MOST_SHARE = 0.02  # of the vocabulary: Magikarp calls at most 2 % candidates
_LARGEST_HEADER = 100 << 20
_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "F64": np.dtype("<f8"),
}


def read_glitch_list(path: str, loaded: LoadedTokenizer) -> tuple[int, ...]:
    """Ids from a file with one token per line: an id, or the token as the vocabulary writes it.

    Raises:
        TokenizerError: the file cannot be read, or a line is neither.
    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"no list of glitch tokens at {path}: {error}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        known = int(line) if line.strip().isdecimal() else loaded.tokenizer.token_to_id(line)
        if known is None or known >= loaded.vocab_size:
            raise TokenizerError(
                f"{path}, line {number}: {line.strip()[:40]!r} is no token and no id of {loaded.source}"
            )
        found.append(known)
    return tuple(sorted(set(found)))


def undertrained(matrix: NDArray[np.float32], loaded: LoadedTokenizer) -> tuple[int, ...]:
    """Ids whose rows lie as close to the untrained ones as those do to each other.

    Args:
        matrix: (rows, width) the output embedding, or the input embedding where both are tied.
        loaded: the tokenizer it belongs to.

    Returns:
        Ids ascending, without the reference tokens themselves, which no text can give; at most 2 % of the
        vocabulary; () where fewer than three reference rows exist.
    """
    reference = _untrained_rows(loaded, len(matrix))
    if len(reference) < _FEWEST:
        return ()
    centred = matrix - matrix.mean(axis=0)  # the part that all rows share says nothing about training
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    mean = centred[reference].mean(axis=0)
    mean /= max(float(np.linalg.norm(mean)), 1e-12)
    distance = 1 - centred @ mean  # cosine distance
    limit = float(distance[reference].max())
    known = np.flatnonzero(distance[: loaded.vocab_size] <= limit)
    special = np.fromiter(loaded.special.values(), np.int64)
    close = np.setdiff1d(known, np.concatenate([np.array(reference), special]))
    most = int(_MOST_SHARE * loaded.vocab_size)
    return tuple(sorted(close[np.argsort(distance[close], kind="stable")[:most]].tolist()))


def embedding_of(folder: str) -> NDArray[np.float32]:
    """The output embedding in a model folder's safetensors files (the input embedding where both are tied).

    Only that tensor is read. Raises TokenizerError where none of the usual names is there.
    """
    shards = {path: _header(path) for path in sorted(Path(folder).glob("*.safetensors"))}
    for name in _NAMES:
        for path, (header, start) in shards.items():
            if name in header:
                return _tensor(path, header[name], start)
    raise TokenizerError(f"{folder} has no safetensors file with one of {', '.join(_NAMES)}")


def _header(path: Path) -> tuple[dict[str, Any], int]:
    with path.open("rb") as file:
        length = file.read(8)
        size = int.from_bytes(length, "little")
        header = file.read(size) if len(length) == 8 and size <= _LARGEST_HEADER else b""  # noqa: PLR2004
    try:
        return orjson.loads(header), 8 + size
    except orjson.JSONDecodeError as error:
        raise TokenizerError(f"{path} is not a safetensors file: {error}") from error


def _tensor(path: Path, entry: dict[str, Any], start: int) -> NDArray[np.float32]:
    dtype = _DTYPES.get(entry["dtype"])
    if dtype is None:
        raise TokenizerError(f"{path}: an embedding of type {entry['dtype']} is not supported")
    first, last = entry["data_offsets"]
    count = (last - first) // dtype.itemsize
    raw = np.fromfile(path, dtype, count, offset=start + first)
    if entry["dtype"] == "BF16":
        raw = (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.reshape(entry["shape"]).astype(np.float32)


def _untrained_rows(loaded: LoadedTokenizer, rows: int) -> list[int]:
    vocabulary = loaded.tokenizer.get_vocab(with_added_tokens=False)
    names: Iterable[str] = [f"<0x{b:02X}>" for b in _IMPOSSIBLE_BYTES] + [chr(b) for b in _IMPOSSIBLE_BYTES]
    found = {vocabulary[name] for name in names if name in vocabulary}
    found.update(range(loaded.vocab_size, rows))
    return sorted(i for i in found if i < rows)
