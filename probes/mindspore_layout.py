"""What the MindSpore decoder must know of a `config.json`: the Llama layout with the variations its relatives have.

Llama, Mistral and Qwen2 differ in which projections carry a bias, in how rotary positions are stretched and in whether
attention looks back over a window. Numbers only: no framework is imported here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decoder_config import DecoderConfig

FAMILIES = ("llama", "mistral", "qwen2")

#: Added to the attention scores of positions that may not be seen. Finite in float32, minus infinity once cast to fp16:
#: the softmax is the same, since every position sees at least itself.
_UNSEEN = -1e9


@dataclass(frozen=True, slots=True)
class Rotary:
    """How the angles of rotary positions are stretched: `kind` is default, linear or llama3."""

    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192

    def frequencies(self, theta: float, head_dim: int) -> NDArray[np.float32]:
        """Radians per position of each pair, (head_dim / 2,), in float32 as transformers computes them.

        llama3 leaves short wavelengths alone, divides long ones by `factor` and blends those between (transformers,
        `modeling_rope_utils._compute_llama3_parameters`); linear divides all (Chen et al. 2023, arXiv:2306.15595).
        """
        exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
        inv = (np.float32(1.0) / np.power(np.float32(theta), exponent)).astype(np.float32)
        if self.kind == "linear":
            inv = inv / np.float32(self.factor)
        elif self.kind == "llama3":
            wavelength = 2 * math.pi / inv
            long, short = (
                self.original_positions / self.low_freq_factor,
                self.original_positions / self.high_freq_factor,
            )
            blend = self.original_positions / wavelength - self.low_freq_factor
            blend = blend / (self.high_freq_factor - self.low_freq_factor)
            between = (1 - blend) * inv / self.factor + blend * inv
            inv = np.where(wavelength > long, inv / self.factor, np.where(wavelength < short, inv, between))
        return inv.astype(np.float32)


@dataclass(frozen=True, slots=True)
class FamilyConfig(DecoderConfig):
    """A decoder of the Llama layout. `windows[i]` is how many positions layer i looks back over; 0 means all."""

    family: str = "llama"
    output_bias: bool = False
    mlp_bias: bool = False
    rotary: Rotary = Rotary()
    windows: tuple[int, ...] = ()

    @classmethod
    def from_folder(cls, folder: Path) -> FamilyConfig:
        """Reads `folder/config.json`.

        Raises FileNotFoundError where there is none, ValueError where it asks for something this decoder has not.
        """
        path = folder / "config.json"
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError(  # noqa: TRY004 - what is wrong is the file
                f"{path}: expected a JSON object, found {type(data).__name__}"
            )
        return cls.from_mapping(data, where=str(path))

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], where: str = "config.json") -> FamilyConfig:
        """The same from the parsed object; `where` names it in errors."""
        family = data.get("model_type")
        if family not in FAMILIES:
            raise ValueError(f"{where}: model_type {family!r}; the MindSpore decoder knows {', '.join(FAMILIES)}")
        if data.get("hidden_act", "silu") != "silu":
            raise ValueError(f"{where}: hidden_act {data['hidden_act']!r}; the MindSpore decoder knows 'silu'")
        try:
            heads, width, layers = (
                int(data[key]) for key in ("num_attention_heads", "hidden_size", "num_hidden_layers")
            )
            vocabulary, mlp_width = int(data["vocab_size"]), int(data["intermediate_size"])
        except KeyError as error:
            raise ValueError(f"{where}: {error.args[0]!r} is missing") from error
        rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
        # transformers writes only what differs from its defaults, and those differ by family
        every_bias = bool(data.get("attention_bias", False)) and family == "llama"
        return cls(
            vocab_size=vocabulary,
            width=width,
            mlp_width=mlp_width,
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=int(data.get("num_key_value_heads") or (8 if family == "mistral" else heads)),
            head_dim=int(data.get("head_dim") or width // heads),
            norm_eps=float(data.get("rms_norm_eps", 1e-6)),
            rope_theta=float(data.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
            max_positions=int(data.get("max_position_embeddings", 2048)),
            attention_bias=every_bias or family == "qwen2",
            tied=bool(data.get("tie_word_embeddings", False)),
            pad_id=data.get("pad_token_id"),
            bos_id=data.get("bos_token_id", data.get("eos_token_id")),
            eos_id=data.get("eos_token_id"),
            family=family,
            output_bias=every_bias,
            mlp_bias=bool(data.get("mlp_bias", False)) and family == "llama",
            rotary=_rotary(rope, data, where),
            windows=_windows(family, data, layers),
        )

    def position_tables(self, length: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Cosine and sine of the rotary angles, each (length, head_dim) float32, the halves of a head forming pairs."""
        inv = self.rotary.frequencies(self.rope_theta, self.head_dim)
        angle = np.outer(np.arange(length, dtype=np.float32), inv)
        angle = np.concatenate([angle, angle], axis=1)
        return np.cos(angle), np.sin(angle)

    def attention_bias_table(self, length: int, window: int = 0) -> NDArray[np.float32]:
        """(length, length) float32: 0 where the row's position sees the column's, else -1e9."""
        ahead = np.arange(length)[None, :] - np.arange(length)[:, None]
        unseen = ahead > 0
        if window:
            unseen |= ahead <= -window
        return np.where(unseen, np.float32(_UNSEEN), np.float32(0.0))


def _rotary(rope: Mapping[str, Any], data: Mapping[str, Any], where: str) -> Rotary:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "linear", "llama3"):
        raise ValueError(f"{where}: rotary scaling {kind!r}; the MindSpore decoder knows default, linear and llama3")
    return Rotary(
        kind=kind,
        factor=float(rope.get("factor", 1.0)),
        low_freq_factor=float(rope.get("low_freq_factor", 1.0)),
        high_freq_factor=float(rope.get("high_freq_factor", 4.0)),
        original_positions=int(
            rope.get("original_max_position_embeddings") or data.get("max_position_embeddings") or 8192
        ),
    )


def _windows(family: str, data: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """The look-back of each layer: Mistral's is the same in all, Qwen2's starts above `max_window_layers`."""
    if family == "llama" or not data.get("sliding_window", 4096 if family == "mistral" else None):
        return (0,) * layers
    window = int(data.get("sliding_window", 4096))
    if family == "mistral":
        return (window,) * layers
    kinds = data.get("layer_types")
    if not data.get("use_sliding_window", False):
        return (0,) * layers
    if kinds is None:
        first = int(data.get("max_window_layers", 28))
        return tuple(window if layer >= first else 0 for layer in range(layers))
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
