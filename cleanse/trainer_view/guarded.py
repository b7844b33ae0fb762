"""Calls into the tokenizer's Rust code that must not take the scan along when it panics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer


def encode_all(tokenizer: Tokenizer, texts: list[str]) -> list[Any]:
    """Encodings, None where the tokenizer panics. One call for all; one by one only after a panic."""
    if not texts:
        return []
    found = guarded(lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    if found is not None:
        return list(found)
    if len(texts) == 1:
        return [None]
    half = len(texts) // 2
    return encode_all(tokenizer, texts[:half]) + encode_all(tokenizer, texts[half:])


def guarded(call: Callable[[], Any]) -> Any:
    """The call's result, or None where Rust code panicked.

    pyo3 raises ``PanicException``, which is a BaseException; nothing but a panic and an ordinary error of the
    tokenizer is caught.
    """
    try:
        return call()
    except Exception:  # noqa: BLE001 - the library raises bare Exception for every error of its own
        return None
    except BaseException as error:
        if is_panic(error):
            return None
        raise


def is_panic(error: BaseException) -> bool:
    """Whether this is a panic of Rust code: pyo3's ``PanicException``, which is no ``Exception``."""
    return type(error).__name__ == "PanicException"
