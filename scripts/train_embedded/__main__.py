"""`python -m scripts.train_embedded TEXT --work DIR --until HH:MM` trains; the same command again goes on.

--export OUT   writes what the checkpoint holds as a model folder, also while training runs
--evaluate     loss per language on the held-out records of TEXT
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer

from .corpus import read_documents
from .export import export_model
from .packing import RowStream, TokenStore, encode_documents, group_shares
from .schedule import Schedule, deadline_seconds
from .train import ROW_DECAY, Trainer
from .vocabulary import train_tokenizer

#: Languages are drawn in proportion to (their tokens) ** this.
EXPONENT = 0.7


def _prepare(text: Path, work: Path) -> TokenStore:
    """Tokenizer and token store, made once and kept in the working folder."""
    store_path, tokenizer_path = work / "tokens.npz", work / "tokenizer.json"
    if store_path.exists():
        return TokenStore.load(store_path)
    documents = read_documents(text)
    if not tokenizer_path.exists():
        train_tokenizer(documents, EXPONENT).save(str(tokenizer_path))
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    # A document that spells out a special token must not become one.
    tokenizer.encode_special_tokens = True
    store = encode_documents(documents, tokenizer, piece=ROW_DECAY)
    part = store_path.with_suffix(".part.npz")
    store.save(part)
    part.replace(store_path)
    return store


def main() -> None:
    """Parses the command line and does what it asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="JSONL or .jsonl.zst with the fields text, lang, source")
    parser.add_argument("--work", type=Path, required=True, help="tokenizer, tokens and checkpoint live here")
    parser.add_argument("--until", help="stop at this time of day, UTC")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes")
    parser.add_argument("--decay-minutes", type=float, default=20.0, help="length of the final decay")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-compile", action="store_true", help="where there is no C++ compiler")
    parser.add_argument("--export", type=Path, help="write the model folder and stop")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    store = _prepare(args.text, args.work)
    if args.export:
        export_model(args.work, store, EXPONENT, args.export)
        return
    now = time.time()
    trainer = Trainer(
        stream=RowStream(store, group_shares(store, EXPONENT), seed=0),
        schedule=Schedule(deadline_seconds(args.until, args.minutes, now), 60 * args.decay_minutes),
        checkpoint=args.work / "checkpoint.pt",
        compiled=not args.no_compile,
    )
    resumed = trainer.resume()
    print("resumed at step" if resumed else "new, step", trainer.step, flush=True)
    trainer.run()


if __name__ == "__main__":
    main()
