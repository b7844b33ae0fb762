"""Random models of each family as folders that both frameworks load, and records of ragged lengths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cleanse.probes.types import ProbeRecord
from mindspore_families import MODELS, SIZES, VOCABULARY


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a random model by its name in MODELS, weights large enough that norms differ between records."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            import torch
            import transformers

            family, extra = MODELS[name]
            torch.manual_seed(sorted(MODELS).index(name))
            config = getattr(transformers, f"{family}Config")(**SIZES, **extra)
            model = getattr(transformers, f"{family}ForCausalLM")(config)
            for p in model.parameters():
                p.data.mul_(3.0) if p.dim() == 2 else p.data.add_(0.1 * torch.randn_like(p))
            folder = tmp_path_factory.mktemp(name)
            # small shards, so that the index is read too
            model.save_pretrained(folder, max_shard_size="20KB" if "untied" in name else "1GB")
            made[name] = folder
        return made[name]

    return make


@pytest.fixture(scope="session")
def records() -> list[ProbeRecord]:
    """Ragged: 41, 12, 64, 2, 33, 7 tokens, repeated ids, partly supervised; the second to last has no target."""
    rng = np.random.default_rng(5)
    out = []
    for i, length in enumerate((41, 12, 64, 2, 33, 7)):
        ids = rng.integers(0, VOCABULARY, length)
        ids[length // 2 :: 3] = ids[0]
        supervised = rng.random(length) < 0.6
        supervised[-1] = i != 4
        if i == 4:
            supervised[:] = False
        out.append(ProbeRecord(ids=ids.astype(np.int64), supervised=supervised, n_bytes=3 * length))
    return out
