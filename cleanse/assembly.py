"""The end of a scan: parts become the output directory, by renames that a killed process can repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import orjson

from cleanse import splitting
from cleanse.atomic import read_json
from cleanse.config import ScanConfig
from cleanse.facts import Corpus
from cleanse.inputs import STAGE as SHA256
from cleanse.parts import quarantine_schema
from cleanse.records import FINDINGS_SCHEMA
from cleanse.reviewing import held
from cleanse.splitting import SplitFacts
from cleanse.state import RunState
from cleanse.units import Unit
from cleanse.writers import Part, arrow_to_parquet, assemble_dataset, concatenate_bytes, concatenate_parquet


def assemble(state: RunState, units: Sequence[Unit], corpus: Corpus, config: ScanConfig) -> None:
    """Builds clean/, quarantine/, findings.parquet and what else was asked for; what is there is kept."""
    out = state.out
    clean_schema = corpus.types.schema()
    findings = [state.path(splitting.STAGE, unit.index, ".findings.parquet") for unit in units]
    if not (out / "findings.parquet").exists():
        concatenate_parquet(findings, FINDINGS_SCHEMA, out / "findings.parquet")
    if not (state.folder / held.FILE).exists():
        counted = [
            (state.path(splitting.STAGE, unit.index, f".{held.FILE}"), _facts(state, unit).emitted["clean"])
            for unit in units
        ]
        held.assemble(counted, state.folder / held.FILE)
    if "jsonl" in config.emit and not (out / "clean.jsonl").exists():
        lines = [state.path(splitting.STAGE, unit.index, ".jsonl") for unit in units]
        concatenate_bytes(lines, out / "clean.jsonl")
    for name, schema in (("clean", clean_schema), ("quarantine", quarantine_schema(clean_schema))):
        parts = [
            Part(state.path(splitting.STAGE, unit.index, f".{name}.arrow"), _facts(state, unit).emitted[name])
            for unit in units
        ]
        assemble_dataset(parts, schema, out / name, state.folder / "assembly" / name, _fingerprint(state, name))
    if "parquet" in config.emit and not (out / "clean.parquet").exists():
        arrow_to_parquet(out / "clean", out / "clean.parquet")


def _facts(state: RunState, unit: Unit) -> SplitFacts:
    return SplitFacts.from_json(read_json(state.path(splitting.STAGE, unit.index, ".json")))


def _fingerprint(state: RunState, name: str) -> str:
    """Identifies the content: the inputs' bytes and all that decided what became of them."""
    hashes = [read_json(path) for path in sorted((state.folder / SHA256).glob("*.json"))]
    text = orjson.dumps([name, hashes, state.identity], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()[:16]
