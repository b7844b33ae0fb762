"""The shape of a Llama-layout decoder, read from and written to `config.json`. No framework is imported here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Keys of config.json whose other values would need code that the small decoder does not have.
_REQUIRED: dict[str, object] = {"hidden_act": "silu", "mlp_bias": False, "rope_scaling": None}


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes of a decoder.

    `tied` means that the head's weight is the embedding's; `bos_id` stands before every text that is measured.
    """

    vocab_size: int
    width: int
    mlp_width: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    max_positions: int = 2048
    attention_bias: bool = False
    tied: bool = True
    pad_id: int | None = 0
    bos_id: int | None = 1
    eos_id: int | None = 1

    @classmethod
    def from_folder(cls, folder: Path) -> DecoderConfig:
        """Reads `folder/config.json`.

        Raises FileNotFoundError where there is none, ValueError where it is not of the Llama layout.
        """
        data: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if data.get("model_type") not in ("llama", "qwen2"):
            raise ValueError(f"{folder}: model_type {data.get('model_type')!r} is not of the Llama layout")
        for key, wanted in _REQUIRED.items():
            if data.get(key, wanted) != wanted:
                raise ValueError(f"{folder}: {key} = {data[key]!r}, the small decoder knows {wanted!r} only")
        heads = int(data["num_attention_heads"])
        width = int(data["hidden_size"])
        rope = data.get("rope_parameters") or {}
        return cls(
            vocab_size=int(data["vocab_size"]),
            width=width,
            mlp_width=int(data["intermediate_size"]),
            num_layers=int(data["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(data.get("num_key_value_heads") or heads),
            head_dim=int(data.get("head_dim") or width // heads),
            norm_eps=float(data.get("rms_norm_eps", 1e-6)),
            rope_theta=float(data.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
            max_positions=int(data.get("max_position_embeddings", 2048)),
            attention_bias=bool(data.get("attention_bias", data["model_type"] == "qwen2")),
            tied=bool(data.get("tie_word_embeddings", False)),
            pad_id=data.get("pad_token_id"),
            bos_id=data.get("bos_token_id", data.get("eos_token_id")),
            eos_id=data.get("eos_token_id"),
        )

    def to_json(self) -> str:
        """The text of a `config.json` that transformers reads as LlamaForCausalLM."""
        return json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "vocab_size": self.vocab_size,
                "hidden_size": self.width,
                "intermediate_size": self.mlp_width,
                "num_hidden_layers": self.num_layers,
                "num_attention_heads": self.num_heads,
                "num_key_value_heads": self.num_kv_heads,
                "head_dim": self.head_dim,
                "hidden_act": "silu",
                "rms_norm_eps": self.norm_eps,
                "rope_theta": self.rope_theta,
                "max_position_embeddings": self.max_positions,
                "attention_bias": self.attention_bias,
                "mlp_bias": False,
                "tie_word_embeddings": self.tied,
                "pad_token_id": self.pad_id,
                "bos_token_id": self.bos_id,
                "eos_token_id": self.eos_id,
                "torch_dtype": "float16",
            },
            indent=2,
        )
