"""A record as a trainer sees it: turns for a chat template, or plain text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cleanse.formats.jsonwalk import scalar_text, walk, walk_json
from cleanse.formats.leaves import is_json
from cleanse.formats.roles import role_of
from cleanse.formats.spec import Format, Part
from cleanse.formats.turns import ROLE_KEYS, TEXT_KEYS, is_turn_value
from cleanse.records import Role

Turn = dict[str, Any]  # {"role": ..., "content": ..., and what else the data has}

_TEMPLATE_ROLES = {
    Role.SYSTEM: "system",
    Role.USER: "user",
    Role.ASSISTANT: "assistant",
    Role.TOOL: "tool",
    Role.CHOSEN: "assistant",
    Role.REJECTED: "assistant",
}


@dataclass(frozen=True)
class Conversation:
    """One record, ready for a chat template.

    ``turns`` is the whole conversation (for a pair: the prompt and the chosen answer). Its first ``n_prompt``
    turns are the prompt where the format tells prompt and answer apart, else ``n_prompt`` is 0. ``rejected`` is
    the other ending of a pair, after the same prompt. ``plain`` says that the data has strings, not turns: a
    trainer that wants no template gets ``prompt_text + answer_text`` as they are. A ``document`` has no speakers.
    """

    turns: list[Turn]
    n_prompt: int = 0
    rejected: list[Turn] | None = None
    plain: bool = False
    document: bool = False  # text without speakers: no chat template applies
    prompt_text: str = ""
    answer_text: str = ""
    rejected_text: str = ""
    tools: list[Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # chat_template_kwargs of the record


@dataclass(frozen=True)
class Conversations:
    """The conversations of a record batch, decoded one record at a time, on demand."""

    fmt: Format
    batch: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __getitem__(self, record: int) -> Conversation:
        return conversation(self.fmt, self.row(record))

    def row(self, record: int) -> dict[str, Any]:
        """The record as Python values, with JSON columns decoded and the nulls of merged structs left out."""
        row: dict[str, Any] = {}
        for name, column in zip(self.batch.schema.names, self.batch.columns, strict=True):
            row.setdefault(name, _value(column.slice(record, 1)))
        return row


def _value(one: pa.Array) -> Any:
    """The only value of an array as Python, JSON text decoded at whatever depth it stands."""
    kind = one.type
    if is_json(kind):
        return walk_json(one.storage[0].as_py())
    if _nests_json(kind) and one[0].as_py() is not None:
        if pa.types.is_struct(kind):
            return {f.name: _value(child) for f, child in zip(kind, one.flatten(), strict=True)}
        items = one.flatten()
        return [_value(items.slice(i, 1)) for i in range(len(items))]
    return one[0].as_py()


def _nests_json(kind: pa.DataType) -> bool:
    return any(is_json(kind.field(i).type) or _nests_json(kind.field(i).type) for i in range(kind.num_fields))


def conversation(fmt: Format, row: Mapping[str, Any]) -> Conversation:
    """The conversation of one record (plain Python values). Never raises on odd data: it passes it on."""
    before: list[Turn] = []
    answer: list[Turn] = []
    rejected: list[Turn] | None = None
    asked_text: list[str] = []
    answer_text: list[str] = []
    rejected_text: list[str] = []
    told_apart = plain = False
    for part in fmt.parts:
        value = row.get(part.column)
        if not part.required and not value:
            continue
        turns = _turns(part, value)
        is_plain = not (_has_turns(value) or part.kind == "history")
        plain |= is_plain and part.role != Role.SYSTEM
        text = [_plain_text(value)] if is_plain else []
        if part.role == Role.REJECTED:
            rejected, rejected_text = turns, text
        elif part.kind == "messages" and part.role == Role.OTHER:
            answer += turns  # a whole conversation: prompt and answers are not told apart
        elif part.supervised and part.kind != "history":
            answer, answer_text, told_apart = answer + turns, answer_text + text, True
        else:
            before, asked_text = before + turns, asked_text + text
    before = _joined_users(before)
    return Conversation(
        turns=before + answer,
        n_prompt=len(before) if told_apart else 0,
        rejected=None if rejected is None else before + rejected,
        plain=plain,
        document=all(part.role == Role.TEXT for part in fmt.parts),
        prompt_text="\n".join(asked_text),
        answer_text="".join(answer_text),
        rejected_text="".join(rejected_text),
        tools=_tools(row),
        extra=_extra(row),
    )


def normal_turn(turn: Any) -> Turn:
    """A turn with the keys ``role`` and ``content`` and standard role names; unknown names stay as they are."""
    if not is_turn_value(turn):
        return {"role": None, "content": turn}
    kept = {k: v for k, v in turn.items() if v is not None and k not in (*ROLE_KEYS, *TEXT_KEYS)}
    name = next((turn[k] for k in ROLE_KEYS if turn.get(k) is not None), None)
    known = "role" in turn  # "role" data speaks the template's language already; sharegpt's names are translated
    role = name if known else _TEMPLATE_ROLES.get(role_of(name), name)
    said = next((turn[k] for k in TEXT_KEYS if turn.get(k) is not None), None)
    return {"role": role, "content": _pruned(said), **{k: _pruned(v) for k, v in kept.items()}}


def _pruned(value: Any) -> Any:
    """Without the null keys that Arrow adds where structs of several shapes share one type."""
    if isinstance(value, dict):
        return {k: _pruned(v) for k, v in value.items() if v is not None}
    return [_pruned(v) for v in value] if isinstance(value, list) else value


def _has_turns(value: Any) -> bool:
    return is_turn_value(value) or (isinstance(value, list) and any(is_turn_value(v) for v in value))


def _turns(part: Part, value: Any) -> list[Turn]:
    if part.kind == "messages" and isinstance(value, str):
        decoded = walk_json(value)
        value = decoded if _has_turns(decoded) else value
    if part.kind == "history" and isinstance(value, list):
        sides = ("user", "assistant")
        pairs = [p for p in value if isinstance(p, (list, tuple))]
        return [{"role": sides[i % 2], "content": said} for pair in pairs for i, said in enumerate(pair)]
    if is_turn_value(value):
        return [normal_turn(value)]
    if _has_turns(value) or (part.kind == "messages" and isinstance(value, list)):
        return [normal_turn(turn) for turn in value]
    if part.kind == "messages" and part.role == Role.OTHER:
        return [] if value is None else [normal_turn(value)]
    return [{"role": _TEMPLATE_ROLES.get(part.role, "assistant"), "content": _plain_text(value)}]


def _plain_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, dict)):
        return "\n".join(text for _, text in walk(value))
    return "" if value is None else scalar_text(value)


def _joined_users(turns: list[Turn]) -> list[Turn]:
    """Instruction and input as one user turn, joined by a newline: what LLaMA-Factory and ms-swift do."""
    joined: list[Turn] = []
    for turn in turns:
        plain = set(turn) == {"role", "content"} and isinstance(turn["content"], str)
        if joined and plain and turn["role"] == joined[-1]["role"] == "user" and set(joined[-1]) == set(turn):
            joined[-1] = {"role": "user", "content": f"{joined[-1]['content']}\n{turn['content']}"}
        else:
            joined.append(turn)
    return joined


def _tools(row: Mapping[str, Any]) -> list[Any] | None:
    tools = row.get("tools", row.get("functions"))
    if isinstance(tools, str):
        tools = walk_json(tools)
    return _pruned(tools) if isinstance(tools, list) and tools else None


def _extra(row: Mapping[str, Any]) -> dict[str, Any]:
    extra = row.get("chat_template_kwargs")
    return _pruned(extra) if isinstance(extra, dict) else {}
