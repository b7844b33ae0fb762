"""Control-token strings of the well-known model families: what must not stand in anybody's text.

Each string was taken from the family's published tokenizer configuration. Text made for one model carries them
into the training data of another, where they may become control ids or break the template.
"""

from __future__ import annotations

from collections.abc import Collection

BAR = "\uff5c"  # FULLWIDTH VERTICAL LINE, DeepSeek's own bar
LOW = "\u2581"  # LOWER ONE EIGHTH BLOCK, SentencePiece's space

FAMILIES: dict[str, tuple[str, ...]] = {
    "chatml": ("<|im_start|>", "<|im_end|>", "<|im_sep|>"),
    "gpt": (
        "<|endoftext|>",
        "<|startoftext|>",
        "<|endofprompt|>",
        "<|fim_prefix|>",
        "<|fim_middle|>",
        "<|fim_suffix|>",
        "<|fim_pad|>",
    ),
    "gpt-oss": ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"),
    "llama2": ("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"),
    "sentencepiece": ("<s>", "</s>", "<unk>", "<pad>"),
    "llama3": (
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|python_tag|>",
        "<|finetune_right_pad_id|>",
    ),
    "llama4": ("<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|eot|>", "<|eom|>"),
    "mistral": (
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_CALLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "[IMG_BREAK]",
        "[IMG_END]",
    ),
    "gemma": ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
    "deepseek": (
        f"<{BAR}begin{LOW}of{LOW}sentence{BAR}>",
        f"<{BAR}end{LOW}of{LOW}sentence{BAR}>",
        f"<{BAR}User{BAR}>",
        f"<{BAR}Assistant{BAR}>",
        f"<{BAR}{LOW}pad{LOW}{BAR}>",
        f"<{BAR}fim{LOW}begin{BAR}>",
        f"<{BAR}fim{LOW}hole{BAR}>",
        f"<{BAR}fim{LOW}end{BAR}>",
        f"<{BAR}tool{LOW}calls{LOW}begin{BAR}>",
        f"<{BAR}tool{LOW}calls{LOW}end{BAR}>",
        f"<{BAR}tool{LOW}call{LOW}begin{BAR}>",
        f"<{BAR}tool{LOW}call{LOW}end{BAR}>",
        f"<{BAR}tool{LOW}outputs{LOW}begin{BAR}>",
        f"<{BAR}tool{LOW}outputs{LOW}end{BAR}>",
        f"<{BAR}tool{LOW}sep{BAR}>",
        "<|EOT|>",
    ),
    "glm": ("[gMASK]", "<sop>", "<eop>", "<|user|>", "<|assistant|>", "<|system|>", "<|observation|>"),
    "phi": ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|placeholder1|>"),
    "qwen": (
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|object_ref_start|>",
        "<|object_ref_end|>",
        "<|box_start|>",
        "<|box_end|>",
        "<|quad_start|>",
        "<|quad_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|vision_pad|>",
        "<|image_pad|>",
        "<|video_pad|>",
        "<|repo_name|>",
        "<|file_sep|>",
    ),
    "command": (
        "<BOS_TOKEN>",
        "<EOS_TOKEN>",
        "<|START_OF_TURN_TOKEN|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|USER_TOKEN|>",
        "<|CHATBOT_TOKEN|>",
        "<|SYSTEM_TOKEN|>",
    ),
}

AMBIGUOUS = frozenset({"<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<|end|>", "<|start|>"})
"""Strings that are also HTML or everyday notation (``<s>`` strikes text out): no evidence on their own."""

_MARKS = (  # the first family whose mark the vocabulary has, most particular first
    ("deepseek", f"<{BAR}begin{LOW}of{LOW}sentence{BAR}>"),
    ("llama4", "<|header_start|>"),
    ("llama3", "<|start_header_id|>"),
    ("gemma", "<start_of_turn>"),
    ("glm", "[gMASK]"),
    ("gpt-oss", "<|channel|>"),
    ("command", "<|START_OF_TURN_TOKEN|>"),
    ("qwen", "<|im_start|>"),
    ("mistral", "[TOOL_CALLS]"),
    ("gpt", "<|endoftext|>"),
    ("llama2", "</s>"),
)


def family_of(vocabulary: Collection[str]) -> str:
    """The family whose control tokens a vocabulary has, or "" for none that is known."""
    return next((family for family, mark in _MARKS if mark in vocabulary), "")


def family_strings() -> dict[str, str]:
    """Every known control string, and the first family that has it."""
    strings: dict[str, str] = {}
    for family, tokens in FAMILIES.items():
        for token in tokens:
            strings.setdefault(token, family)
    return strings
