"""Arrow dataset folders that ``datasets.load_from_disk`` opens, put together from the parts the workers wrote."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from cleanse.atomic import committed, write_json
from cleanse.storage.files import Files, LocalFiles

STATE, INFO = "state.json", "dataset_info.json"
_FINDINGS_PER_GROUP = 1 << 16
HUGGINGFACE = b"huggingface"
_ADDED_FEATURES = {
    "cleanse_id": {"dtype": "string", "_type": "Value"},
    "cleanse_source": {"dtype": "string", "_type": "Value"},
    "cleanse_row": {"dtype": "int64", "_type": "Value"},
    "cleanse_reasons": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "List"},
    "cleanse_raw": {"dtype": "large_binary", "_type": "Value"},
}


@dataclass(frozen=True)
class Part:
    """One unit's share of a dataset."""

    path: Path
    n_rows: int


def with_features(schema: pa.Schema, features: dict[str, Any] | None) -> pa.Schema:
    """The schema with the metadata that tells ``datasets`` about columns Arrow types alone do not describe."""
    if not features:
        return schema.remove_metadata()
    return schema.with_metadata({HUGGINGFACE: orjson.dumps({"info": {"features": features}})})


def quarantine_features(features: dict[str, Any] | None) -> dict[str, Any] | None:
    """The features of the quarantine table, whose columns are named by ``cleanse.quarantine.schema_for``."""
    if not features:
        return None
    renamed = {f"input_{k}" if k in _ADDED_FEATURES else k: v for k, v in features.items()}
    return {**renamed, **_ADDED_FEATURES}


def assemble_dataset(  # noqa: PLR0917 - a dataset, and where its files are
    parts: Sequence[Part], schema: pa.Schema, target: Path, work: Path, fingerprint: str, files: Files | None = None
) -> None:
    """Makes ``target`` a dataset folder out of parts, by renaming them.

    Every step can be repeated, so a killed assembly goes on where it stopped: the folder appears under its name
    only when it is complete, or, where folders have no names of their own, its state.json, which lists its files.

    Args:
        parts: Arrow IPC streams of ``schema``, in the order of the input.
        schema: written as an empty file where no part has a row: a dataset of no files cannot be loaded.
        target: the folder to make.
        work: a folder on the same disk to build it in.
        fingerprint: what identifies the content; must not depend on time or chance.
        files: where parts and folder are; on this machine's disk by default.
    """
    files = files or LocalFiles()
    if files.has(target / STATE):
        return
    folder = files.workplace(target, work)
    folder.mkdir(parents=True, exist_ok=True)
    filled = [part for part in parts if part.n_rows]
    named = names(len(filled))
    for part, name in zip(filled, named, strict=False):
        files.move(part.path, folder / name)
    if not filled:
        with committed(folder / named[0]) as temporary, pa.ipc.new_stream(str(temporary), schema):
            pass
        files.send(folder / named[0])
    info: dict[str, Any] = {"citation": "", "description": "", "homepage": "", "license": ""}
    if schema.metadata and HUGGINGFACE in schema.metadata:
        info["features"] = orjson.loads(schema.metadata[HUGGINGFACE])["info"]["features"]
    write_json(folder / INFO, info)
    write_json(
        folder / STATE,
        {
            "_data_files": [{"filename": name} for name in named],
            "_fingerprint": fingerprint,
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        },
    )
    files.send(folder / INFO, folder / STATE)
    files.reveal(folder, target)


def names(n_filled: int) -> list[str]:
    """The data files of a dataset folder with so many filled parts: one at least."""
    n_files = max(1, n_filled)
    return [f"data-{i:05d}-of-{n_files:05d}.arrow" for i in range(n_files)]


def concatenate_parquet(parts: Iterable[Path], schema: pa.Schema, target: Path) -> None:
    """One Parquet file from many, in order, holding one row group at a time."""
    with committed(target) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for table in _regrouped(_batches(parts), schema):
            writer.write_table(table)


def concatenate_bytes(parts: Iterable[Path], target: Path) -> None:
    """One file from many, in order."""
    with committed(target) as temporary, temporary.open("wb") as out:
        for part in parts:
            with part.open("rb") as lines:
                shutil.copyfileobj(lines, out, 1 << 20)


def arrow_to_parquet(files: Iterable[Path], target: Path) -> None:
    """The rows of a dataset's data files, one at least, as one Parquet file, a record batch at a time."""
    with ExitStack() as stack:
        temporary = stack.enter_context(committed(target))
        writer: pq.ParquetWriter | None = None
        for file in files:
            with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as stream:
                if writer is None:
                    writer = stack.enter_context(pq.ParquetWriter(temporary, stream.schema, compression="zstd"))
                for batch in stream:
                    writer.write_batch(batch)


def _batches(parts: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        with pq.ParquetFile(part) as file:
            yield from file.iter_batches(_FINDINGS_PER_GROUP)


def _regrouped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Row groups of a fixed size, whatever the sizes of the parts: many small units do not make small groups."""
    pending: list[pa.RecordBatch] = []
    n_pending = 0
    for batch in batches:
        pending.append(batch)
        n_pending += batch.num_rows
        while n_pending >= _FINDINGS_PER_GROUP:
            table = pa.Table.from_batches(pending, schema)
            yield table.slice(0, _FINDINGS_PER_GROUP)
            pending = table.slice(_FINDINGS_PER_GROUP).to_batches()
            n_pending -= _FINDINGS_PER_GROUP
    if n_pending:
        yield pa.Table.from_batches(pending, schema)
