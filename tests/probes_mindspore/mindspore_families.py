"""The random models that both frameworks are compared on, and whether they can be here."""

from __future__ import annotations

import importlib.util
from typing import Any

VOCABULARY = 160
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 50_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
#: name: (family, configuration beyond the sizes)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-untied-biases-llama3": (
        "Llama",
        {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3},
    ),
    "llama-linear": (
        "Llama",
        {
            "tie_word_embeddings": True,
            "head_dim": 16,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0},
        },
    ),
    "mistral-window": ("Mistral", {"tie_word_embeddings": False, "sliding_window": 8}),
    "qwen2-tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-untied": ("Qwen2", {"tie_word_embeddings": False, "rope_parameters": {"rope_theta": 1e6}}),
}


def missing(*names: str) -> str:
    """Why tests that need these packages cannot run here; empty where they can."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: `make mindspore` builds an environment with mindspore and torch"
    return ""
