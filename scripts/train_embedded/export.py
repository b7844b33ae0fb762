"""Writes the model folder that ships: weights in half precision, tokenizer, unigram counts, model card."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cleanse.probes.decoder import load_decoder
from safetensors.torch import save_file

from .evaluate import GroupLoss, held_out_losses
from .packing import TokenStore, unigram_counts
from .train import CONFIG
from .vocabulary import VOCABULARY

CARD = """# The embedded probe model

A decoder of {parameters:,} parameters (Llama layout: {layers} layers of width {width}, {heads} query and {kv} key/value
heads, SwiGLU of {mlp}, tied embedding) with a byte-level BPE of {vocabulary:,} entries. It ships with cleanse so that a
scan needs no download. Licence: Apache-2.0.

**What it is for.** Telling how much a record would disturb training: its loss, what context saves it, its gradient.
**What it is not.** It generates nothing worth reading, knows no facts, has seen no conversation to speak of, and its
losses say nothing about how well a large model knows a text. For languages that are not in the table it is little more
than a byte model.

- `config.json`, `model.safetensors` (float16), `tokenizer.json`: load as any Llama model.
- `unigram.npy`: how often each token id stood in the training stream (uint32, one entry per id).
- Ids: 0 `<|cleanse:pad|>`, 1 `<|cleanse:eos|>`. One EOS stands before every text and is no target.
- Trained on {tokens:.1f} million tokens ({steps:,} steps of 8,192; rows of 256 tokens, of 512 at the end) by
  `python -m scripts.train_embedded`: Muon and AdamW, learning rates {muon} and {adam}, constant, then linear to zero.

## Data

{pieces:,} pieces ({store_tokens:.1f} million tokens) of openly licensed text: XQuAD, CMRC 2018, JSQuAD, P3, GSM8K, BBH,
Gorilla APIBench, Songys' Korean chat, tldr-pages, LibreOffice help, PostgreSQL and Python manuals, Chinese poetry, the
Universal Declaration of Human Rights in 500 languages, Python and JavaScript code. Groups are drawn in proportion to
(their tokens) ** {exponent}; one record in a hundred is held out.

## Held-out loss

Nats per token, each record alone behind one EOS, at most 512 tokens; unigram is the surprisal under `unigram.npy`.

| language/source | tokens | loss | unigram | nats per byte |
|---|---|---|---|---|
{table}
"""


def _table(rows: list[GroupLoss]) -> str:
    return "\n".join(
        f"| {r.group} | {r.tokens:,} | {r.loss:.2f} | {r.unigram:.2f} | {r.loss / r.bytes_per_token:.3f} |"
        for r in rows
    )


def export_model(work: Path, store: TokenStore, exponent: float, out: Path) -> None:
    """Exports `work/checkpoint.pt` to `out` and prints the held-out losses. Raises FileNotFoundError without one."""
    # Our own file, holding numpy and generator state as well.
    state: dict[str, Any] = torch.load(work / "checkpoint.pt", weights_only=False)
    out.mkdir(parents=True, exist_ok=True)
    weights = {name: w.half().contiguous() for name, w in state["master"].items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(CONFIG.to_json() + "\n", encoding="utf-8")
    shutil.copyfile(work / "tokenizer.json", out / "tokenizer.json")
    counts = unigram_counts(store, exponent, VOCABULARY)
    np.save(out / "unigram.npy", counts)
    rows = held_out_losses(load_decoder(out), store, counts)
    card = CARD.format(
        parameters=sum(w.numel() for w in weights.values()),
        layers=CONFIG.num_layers,
        width=CONFIG.width,
        heads=CONFIG.num_heads,
        kv=CONFIG.num_kv_heads,
        mlp=CONFIG.mlp_width,
        vocabulary=VOCABULARY,
        tokens=state["tokens"] / 1e6,
        steps=state["step"],
        muon=0.02,
        adam=0.003,
        pieces=len(store.starts) - 1,
        store_tokens=len(store.tokens) / 1e6,
        exponent=exponent,
        table=_table(rows),
    )
    (out / "MODEL_CARD.md").write_text(card, encoding="utf-8")
    print(card)
