"""What the speakers are called in the wild, and which of our roles each name is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cleanse.records import Role

ROLE_NAMES: dict[str, Role] = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "human": Role.USER,
    "prompter": Role.USER,  # OpenAssistant
    "assistant": Role.ASSISTANT,
    "gpt": Role.ASSISTANT,
    "chatgpt": Role.ASSISTANT,
    "bing": Role.ASSISTANT,
    "bard": Role.ASSISTANT,
    "bot": Role.ASSISTANT,
    "ai": Role.ASSISTANT,
    "model": Role.ASSISTANT,  # Gemma
    "function_call": Role.ASSISTANT,  # LLaMA-Factory: the model asks for a tool
    "tool_call": Role.ASSISTANT,  # ms-swift
    "tool": Role.TOOL,
    "tool_response": Role.TOOL,  # ms-swift
    "function": Role.TOOL,  # OpenAI before tools
    "observation": Role.TOOL,  # LLaMA-Factory
    "ipython": Role.TOOL,  # Llama 3
}
"""Lower-case role names that a chat trainer or a known data set uses. Any other name is ``Role.OTHER``."""

TRAINED_ROLES = frozenset({Role.TEXT, Role.ASSISTANT, Role.CHOSEN, Role.REJECTED})

_ANSWER_BY_NAME = np.array([int(r in TRAINED_ROLES) for r in Role], np.bool_)


def role_of(name: object) -> Role:
    """The role that a speaker's name stands for; ``Role.OTHER`` for anything unknown or not a string."""
    return ROLE_NAMES.get(name.strip().lower(), Role.OTHER) if isinstance(name, str) else Role.OTHER


def roles_of(names: pa.Array) -> NDArray[np.uint8]:
    """The roles of an Arrow array of names, shape (names,), looked up once per distinct name."""
    if len(names) == 0:
        return np.zeros(0, np.uint8)
    encoded = names if pa.types.is_dictionary(names.type) else pc.dictionary_encode(names)
    table = np.array([role_of(n) for n in encoded.dictionary.to_pylist()] + [Role.OTHER], np.uint8)
    codes = encoded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)
    found: NDArray[np.uint8] = table[codes]
    return found


def trained(roles: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which of these roles a trainer computes loss on, shape as given."""
    kept: NDArray[np.bool_] = _ANSWER_BY_NAME[roles]
    return kept
