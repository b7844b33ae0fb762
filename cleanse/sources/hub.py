"""Data sets of the Hugging Face hub, streamed through ``datasets`` into Arrow files in the spool.

Imported in the main process only: workers read the spooled files and never import ``datasets``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from cleanse.sources.errors import SourceError

_BATCH = 1000  # records per Arrow batch: what datasets itself writes
_RETRY = "check the name and the network, or download it and give the folder"

Load = Callable[..., Any]


def spool_hub(text: str, spool: Path, load: Load | None = None) -> list[tuple[str, str]]:
    """Streams a data set into the spool; returns name and Arrow file of each of its splits.

    Args:
        text: ``owner/name[:config[:split]]``, with or without ``hub:`` in front. Without a split, all of them.
        spool: folder for the files. A split that an earlier run streamed to its end is not streamed again.
        load: stands in for ``datasets.load_dataset``.

    Raises:
        SourceError: the data set cannot be loaded, or the disk is full.
    """
    name, config, split = _parts(text)
    if load is None:
        from datasets import load_dataset  # noqa: PLC0415 - heavy, and only for hub ids

        load = load_dataset
    try:
        loaded = load(name, config, split=split, streaming=True)
    except Exception as error:
        raise SourceError(f"{text}: the hub data set cannot be loaded ({error}); {_RETRY}") from error
    splits = loaded if isinstance(loaded, Mapping) else {split or "train": loaded}
    whole = f"{name}:{config}" if config else name
    made = []
    for split_name, records in splits.items():
        title = f"{whole}:{split_name}" if config or len(splits) > 1 or split else name
        digest = hashlib.sha256(f"{whole}\0{split_name}".encode()).hexdigest()[:16]
        path = spool / f"hub-{digest}.arrow"
        if not path.is_file():
            _write(title, records, path)
        made.append((title, str(path)))
    return made


def _parts(text: str) -> tuple[str, str | None, str | None]:
    name, *rest = text.removeprefix("hub:").split(":")
    if len(rest) > 2 or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):  # noqa: PLR2004 - config and split
        raise SourceError(f"{text}: expected a hub id such as owner/name, owner/name:config or owner/name:config:split")
    config, split = [*rest, "", ""][:2]
    return name, config or None, split or None


def _write(title: str, records: Any, path: Path) -> None:
    """Writes an Arrow stream; the file has its name only when it is complete."""
    part = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        batches = _batches(records)
        first = next(batches, None)
        schema = first.schema if first is not None else pa.schema([])
        with part.open("wb") as out, pa.ipc.new_stream(out, schema) as writer:
            while first is not None:
                writer.write_batch(first)
                first = next(batches, None)
        part.replace(path)
    except SourceError:
        raise
    except Exception as error:
        part.unlink(missing_ok=True)
        raise SourceError(f"{title}: reading from the hub stopped ({error}); {_RETRY}") from error


def _batches(records: Any) -> Iterator[pa.RecordBatch]:
    """Record batches of one schema: the declared features', or else that of the first batch."""
    features = getattr(records, "features", None)
    schema = features.arrow_schema if features is not None else None
    for table in records.with_format("arrow").iter(batch_size=_BATCH):
        if schema is None:
            schema = table.schema
        # Streaming may find other types in later files; a cast that would lose something raises.
        yield from table.select(schema.names).cast(schema).combine_chunks().to_batches()
