"""The same walk as ``leaves``, over Python values: for columns that hold JSON text of mixed shapes."""

from __future__ import annotations

from typing import Any, Literal

import orjson

Leaf = tuple[str, str]  # path below the value, text

Mode = Literal["text", "part", "call"]
"""Where a walk stands. ``text``: where a text was expected, so a number counts as its JSON text; ``part``: inside
an object, where a number is an attribute; ``call``: inside a tool call, where a key "type" is an argument like
any other rather than the mark of a content part."""

PART_KEYS = ("text", "content", "thinking", "reasoning", "refusal", "input_text", "output_text", "input")
"""Keys of a content part ({"type": ..., ...}) that hold text. Others hold media, identifiers, or settings."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def key_path(key: str) -> str:
    """A key as a step of a path: ``.content``, or ``["odd key"]`` where it has other characters."""
    if key and _PLAIN.issuperset(key):
        return f".{key}"
    return f"[{orjson.dumps(key).decode()}]"


def scalar_text(value: Any) -> str:
    """The JSON text of a value that stands where a text was expected (dates and the like: their ``str``)."""
    return orjson.dumps(value, default=str).decode()


def walk_json(text: str | None) -> Any:
    """The value of a JSON text; the text itself where it is not JSON after all."""
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def walk(value: Any, mode: Mode = "text") -> list[Leaf]:
    """All strings in a JSON value, in reading order, by the rules of ``leaves.text_leaves``."""
    if isinstance(value, str):
        return [("", value)]
    if isinstance(value, list):
        return [(f"[{i}]{path}", text) for i, item in enumerate(value) for path, text in walk(item, mode)]
    if isinstance(value, dict):
        is_part = mode != "call" and "type" in value
        below: Mode = "call" if mode == "call" else "part"
        keys = [k for k in value if k in PART_KEYS] if is_part else list(value)
        return [(key_path(k) + path, text) for k in keys for path, text in walk(value[k], below)]
    return [] if value is None or mode != "text" else [("", scalar_text(value))]
