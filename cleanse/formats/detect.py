"""Which format a file has, from its first records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cleanse.formats.jsonwalk import walk_json
from cleanse.formats.spec import Format, FormatError, Part, answered, asked
from cleanse.formats.turns import is_turn_value
from cleanse.records import Role

MESSAGES = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat", "turns")
TEXTS = ("text", "content", "raw_content", "document", "body", "markdown", "code", "contents", "article")
PAIRS = tuple(
    (prompt, answer)
    for prompt in ("prompt", "question", "instruction", "query", "problem", "input", "source", "inputs")
    for answer in ("completion", "response", "answer", "output", "solution", "target", "targets")
)
META = frozenset(
    {"id", "idx", "uid", "uuid", "index", "lang", "language", "license", "licence", "url", "source", "origin", "split"}
    | {"category", "task", "topic", "tags", "date", "timestamp", "created", "model", "name", "title", "path", "file"}
    | {"filename", "hash", "md5", "sha1", "sha256", "meta", "metadata"}
)
"""Columns that say something about a record and are not text to learn: not measured."""

Head = Sequence[Mapping[str, Any]]


def detect(head: Head, *, name: str = "auto", text_column: str | None = None) -> Format:
    """The format of the records that ``head`` shows.

    Args:
        head: the first parseable records, as Python values.
        name: "auto", or the name of a format that must fit.
        text_column: measure this column, as plain text.

    Raises:
        FormatError: the columns fit no format, or not the one asked for; names what was seen and known.
    """
    columns = list(dict.fromkeys(key for row in head for key in row))
    if text_column is not None:
        if name not in ("auto", "text"):
            raise FormatError(
                f"--text-column is for plain text, and --format {name} was asked for: give one of the two"
            )
        if text_column not in columns:
            raise FormatError(f"there is no column {text_column!r}: the data has {_listed(columns)}")
        return Format("text", (answered(text_column, Role.TEXT),))
    if name != "auto":
        if name not in FORMATS:
            raise FormatError(f"no format is called {name!r}: known are auto, {', '.join(FORMATS)}")
        found = FORMATS[name](head, columns)
        if found is None:
            raise FormatError(f"the columns do not fit format {name}: the data has {_listed(columns)}")
        return found
    for attempt in FORMATS.values():
        found = attempt(head, columns)
        if found is not None:
            return found
    raise FormatError(
        f"no column of the data holds text: it has {_listed(columns)}; known formats: {', '.join(FORMATS)}. "
        + (_TOKENISED if "input_ids" in columns else "Name the column with --text-column")
    )


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(repr(c) for c in columns[:20]) + (" ..." if len(columns) > 20 else "") if columns else "no columns"  # noqa: PLR2004


def _holds_turns(head: Head, column: str) -> bool:
    """Whether any of the first records has turns in this column (as values or as JSON text)."""
    for row in head:
        value = row.get(column)
        if isinstance(value, str) and value[:1] in ("[", "{"):
            value = walk_json(value)
        if is_turn_value(value) or (isinstance(value, list) and any(is_turn_value(v) for v in value)):
            return True
    return False


def _role_key(head: Head, column: str) -> str:
    for row in head:
        value = row.get(column)
        value = walk_json(value) if isinstance(value, str) else value
        for turn in value if isinstance(value, list) else ():
            if is_turn_value(turn):
                return "role" if "role" in turn else "from"
    return "role"


def _extras(columns: Sequence[str], *names: str) -> tuple[Part, ...]:
    return tuple(asked(n, Role.SYSTEM, required=False) for n in names if n in columns)


def _said(column: str, head: Head, role: Role, *, supervised: bool) -> Part:
    """A column that is a string in some data sets and a list of turns in others."""
    return Part(column, "messages" if _holds_turns(head, column) else "text", role, supervised)


def _preference(head: Head, columns: Sequence[str]) -> Format | None:
    for good, bad in (
        ("chosen", "rejected"),
        ("preferred_output", "non_preferred_output"),
        ("response", "rejected_response"),
    ):
        if good not in columns or bad not in columns:
            continue
        before = [c for c in (*MESSAGES, "prompt", "question", "instruction", "query", "input") if c in columns]
        if any(c in MESSAGES and _holds_turns(head, c) for c in before) and "prompt" in columns:
            before = ["prompt"]  # UltraFeedback repeats the chosen conversation in "messages"
        parts = [_said(c, head, Role.USER, supervised=False) for c in before[:1]]
        parts += [_said(good, head, Role.CHOSEN, supervised=True), _said(bad, head, Role.REJECTED, supervised=True)]
        note = "conversational" if parts[-1].kind == "messages" else ""
        return Format("preference", (*_extras(columns, "system"), *_history(columns), *parts), note)
    return None


def _kto(head: Head, columns: Sequence[str]) -> Format | None:
    if not {"prompt", "completion", "label"}.issubset(columns):
        return None
    labels = [row["label"] for row in head if row.get("label") is not None]
    if not all(isinstance(v, bool) or v in (0, 1, "true", "false", "True", "False") for v in labels):
        return None
    parts = (
        _said("prompt", head, Role.USER, supervised=False),
        _said("completion", head, Role.ASSISTANT, supervised=True),
    )
    return Format("kto", (*_extras(columns, "system"), *parts))


def _conversation(head: Head, columns: Sequence[str], key: str) -> Format | None:
    named = [c for c in MESSAGES if c in columns]
    split = any(p in columns and a in columns for p, a in PAIRS)  # prompt and completion may be turns themselves
    for column in [*named, *(c for c in columns if c not in named and not split)]:
        if _holds_turns(head, column) and _role_key(head, column) == key:
            part = Part(column, "messages", Role.OTHER, supervised=True)
            name = "messages" if key == "role" else "sharegpt"
            return Format(name, (*_extras(columns, "system"), part))
    return None


def _messages(head: Head, columns: Sequence[str]) -> Format | None:
    return _conversation(head, columns, "role")


def _sharegpt(head: Head, columns: Sequence[str]) -> Format | None:
    return _conversation(head, columns, "from")


def _history(columns: Sequence[str]) -> tuple[Part, ...]:
    return (Part("history", "history", Role.USER, supervised=True, required=False),) if "history" in columns else ()


def _ms_swift(head: Head, columns: Sequence[str]) -> Format | None:
    if "query" not in columns or "response" not in columns:
        return None
    asks = _said("query", head, Role.USER, supervised=False)
    return Format("ms_swift", (*_extras(columns, "system"), *_history(columns), asks, answered("response")))


def _alpaca(head: Head, columns: Sequence[str]) -> Format | None:
    answer = next((c for c in ("output", "response", "completion", "answer") if c in columns), None)
    if "instruction" not in columns or answer is None:
        return None
    context = [asked(c, required=False) for c in ("input", "context") if c in columns]
    parts = (asked("instruction"), *context, _said(answer, head, Role.ASSISTANT, supervised=True))
    return Format("alpaca", (*_extras(columns, "system"), *_history(columns), *parts))


def _prompt_completion(head: Head, columns: Sequence[str]) -> Format | None:
    for prompt, answer in PAIRS:
        if prompt in columns and answer in columns:
            parts = (
                _said(prompt, head, Role.USER, supervised=False),
                _said(answer, head, Role.ASSISTANT, supervised=True),
            )
            context = tuple(asked(c, required=False) for c in ("context",) if c in columns)
            return Format("prompt_completion", (*_extras(columns, "system"), *context, *parts))
    return None


def _text(head: Head, columns: Sequence[str]) -> Format | None:
    for column in TEXTS:
        if column in columns and any(isinstance(row.get(column), (str, type(None))) for row in head):
            return Format("text", (answered(column, Role.TEXT),))
    return None


def _may_hold_text(value: Any) -> bool:
    """Whether a string stands anywhere inside, as far as the first items tell; token ids and labels hold none."""
    if isinstance(value, (list, dict)):
        inner = value if isinstance(value, list) else list(value.values())
        return any(_may_hold_text(item) for item in inner[:20])
    return isinstance(value, str)


def _unknown(head: Head, columns: Sequence[str]) -> Format | None:
    likely = [c for c in columns if c.lower() not in META]
    texts = [c for c in likely if any(_may_hold_text(row.get(c)) for row in head)]
    texts = texts or [c for c in columns if any(isinstance(row.get(c), str) for row in head)]
    if not texts:
        return None
    parts = tuple(Part(c, "text", Role.TEXT, supervised=True, required=False) for c in texts)
    return Format("unknown", parts, "no known format: every column with text is measured")


_TOKENISED = "It is tokenised already: scan the data it was made from, with --tokenizer and --max-length"

FORMATS: dict[str, Callable[[Head, Sequence[str]], Format | None]] = {
    "preference": _preference,
    "kto": _kto,
    "messages": _messages,
    "sharegpt": _sharegpt,
    "ms_swift": _ms_swift,
    "alpaca": _alpaca,
    "prompt_completion": _prompt_completion,
    "text": _text,
    "unknown": _unknown,
}
"""From the most particular to the least; the first that fits is the format."""
