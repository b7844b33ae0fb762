"""The end of a scan: parts become the output directory, by renames that a killed process can repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from cleanse import splitting
from cleanse.atomic import read_json
from cleanse.config import ScanConfig
from cleanse.facts import Corpus
from cleanse.inputs import STAGE as SHA256
from cleanse.parts import CLEAN, FINDINGS, HELD, LINES, QUARANTINE, quarantine_schema
from cleanse.records import FINDINGS_SCHEMA
from cleanse.reviewing import held
from cleanse.splitting import SplitFacts
from cleanse.state import RunState
from cleanse.units import Unit
from cleanse.writers import (
    STATE,
    Part,
    arrow_to_parquet,
    assemble_dataset,
    concatenate_bytes,
    concatenate_parquet,
    names,
)


def assemble(state: RunState, units: Sequence[Unit], corpus: Corpus, config: ScanConfig) -> None:
    """Builds clean/, quarantine/, findings.parquet and what else was asked for; what is there is kept."""
    out, files = state.out, state.files
    n_sources = 1 + max(shard.source.index for unit in units for shard in unit.shards)
    clean_schema = corpus.types.schema()

    def parts(suffix: str) -> list[Path]:
        return [state.path(splitting.STAGE, unit.index, suffix) for unit in units]

    hashes = [read_json(path) for path in files.each(state.path(SHA256, i, ".json") for i in range(n_sources))]
    emitted = [_emitted(path) for path in files.each(parts(".json"))]
    if not files.has(out / "findings.parquet"):
        concatenate_parquet(files.each(parts(FINDINGS)), FINDINGS_SCHEMA, out / "findings.parquet")
        files.send(out / "findings.parquet")
    if not files.has(state.folder / held.FILE):
        n_clean = (rows["clean"] for rows in emitted)
        held.assemble(zip(files.each(parts(HELD)), n_clean, strict=True), state.folder / held.FILE)
        files.send(state.folder / held.FILE)
    if "jsonl" in config.emit and not files.has(out / "clean.jsonl"):
        concatenate_bytes(files.each(parts(LINES)), out / "clean.jsonl")
        files.send(out / "clean.jsonl")
    for name, suffix, schema in (
        ("clean", CLEAN, clean_schema),
        ("quarantine", QUARANTINE, quarantine_schema(clean_schema)),
    ):
        if not files.has(out / name / STATE):  # else the parts are moved, or gone
            made = [Part(path, rows[name]) for path, rows in zip(parts(suffix), emitted, strict=True)]
            fingerprint = _fingerprint(state, hashes, name)
            assemble_dataset(made, schema, out / name, state.folder / "assembly" / name, fingerprint, files)
    if "parquet" in config.emit and not files.has(out / "clean.parquet"):
        written = [out / "clean" / name for name in names(sum(rows["clean"] > 0 for rows in emitted))]
        arrow_to_parquet(files.each(written), out / "clean.parquet")
        files.send(out / "clean.parquet")


def _emitted(path: Path) -> Mapping[str, int]:
    """Rows per part of one unit."""
    return SplitFacts.from_json(read_json(path)).emitted


def _fingerprint(state: RunState, hashes: Sequence[str], name: str) -> str:
    """Identifies the content: the inputs' bytes and all that decided what became of them."""
    text = orjson.dumps([name, hashes, state.identity], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()[:16]
