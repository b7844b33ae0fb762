"""Decides what to read, in which order and in which parts. Depends on the inputs and options only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from cleanse.sources.discover import find
from cleanse.sources.errors import SourceError
from cleanse.sources.folders import Found
from cleanse.sources.model import Cut, ReadOptions, Shard, Source
from cleanse.sources.nature import Nature, nature
from cleanse.sources.places import status, together
from cleanse.sources.reader import open_shard

_HEAD_BLOCK = 1 << 20  # bytes per block when only a few records are wanted
_UNPACK_FIRST = ("parquet", "arrow")  # need random access


@dataclass(frozen=True)
class Plan:
    """What a scan reads: sources in the order of the inputs, and their shards in the order of their rows."""

    sources: tuple[Source, ...]
    shards: tuple[Shard, ...]
    options: ReadOptions

    def head(self, source: Source, n: int = 200) -> list[dict[str, Any]]:
        """Up to ``n`` of a source's first parseable records, as Python values."""
        options = ReadOptions(
            max_record_bytes=self.options.max_record_bytes,
            block_bytes=_HEAD_BLOCK,
            shard_bytes=self.options.shard_bytes,
            input_format=self.options.input_format,
        )
        records: list[dict[str, Any]] = []
        for shard in self._shards_of[source.index]:
            for block in open_shard(shard, options):
                wanted = min(n - len(records), block.batch.num_rows)
                if block.raw is not None and source.kind in ("jsonl", "json"):
                    records += [_record(block.raw.line(i), block.batch, i) for i in range(wanted)]
                else:
                    records += block.batch.slice(0, wanted).to_pylist()
                if len(records) >= n:
                    return records
        return records

    @cached_property
    def _shards_of(self) -> dict[int, list[Shard]]:
        """Shards by source: a folder may hold many thousand files."""
        grouped: dict[int, list[Shard]] = {source.index: [] for source in self.sources}
        for shard in self.shards:
            grouped[shard.source.index].append(shard)
        return grouped


def _record(raw: bytes, batch: Any, i: int) -> dict[str, Any]:
    """A record as it stands in the file: without the columns that only other records have."""
    try:
        value: dict[str, Any] = orjson.loads(raw)
    except orjson.JSONDecodeError:  # NaN, and the like
        value = batch.slice(i, 1).to_pylist()[0]
    return value


def plan(inputs: Sequence[str], options: ReadOptions, spool: Path, out: str | None = None) -> Plan:
    """Finds and cuts the inputs.

    Args:
        inputs: files, folders (written by ``save_to_disk``, or with files of known formats), patterns, each a path
            or a URL (``s3://bucket/data/*.jsonl``); hub ids (``owner/name[:config[:split]]``), ``-`` for standard
            input.
        options: sizes, and the input format where names do not tell it.
        spool: folder for what cannot be read where it is: standard input, hub data sets, UTF-16 text,
            compressed Parquet and Arrow files. Made when it is needed.
        out: the output folder or URL, of which nothing is read.

    Raises:
        SourceError: an input is missing, unreadable or of no known format.
    """
    sources: list[Source] = []
    shards: list[Shard] = []
    found = find(list(inputs), options.input_format, out)
    for prepared in together(
        lambda pair: _prepared(*pair, options, spool), enumerate(found), [item.path for item in found]
    ):
        for counted, cuts in prepared:
            source = replace(counted, index=len(sources))
            sources.append(source)
            shards += [Shard(len(shards) + i, source, *cut) for i, cut in enumerate(cuts)]
    return Plan(tuple(sources), tuple(shards), options)


def _prepared(number: int, found: Found, options: ReadOptions, spool: Path) -> list[tuple[Source, list[Cut]]]:
    """The sources of one input, and their cuts."""
    return [(source, _cuts(source, options)) for source in _sources(found, number, options, spool)]


def _sources(found: Found, number: int, options: ReadOptions, spool: Path) -> list[Source]:
    if found.origin == "hub":
        from cleanse.sources.hub import spool_hub  # noqa: PLC0415 - imports datasets

        return [
            Source(number, name, path, "arrow", None, Path(path).stat().st_size)
            for name, path in spool_hub(found.name, spool)
        ]
    path = found.path
    if found.origin == "stdin":
        from cleanse.sources.spool import spool_stdin  # noqa: PLC0415 - rarely needed

        path = spool_stdin(spool)
    what = nature(found.name, path, options.input_format)
    is_now = found.status or status(path)
    plain = Source(number, found.name, path, what.kind, what.compression, is_now.n_bytes, changed_ns=is_now.changed_ns)
    return [_readable(plain, what, spool)]


def _readable(source: Source, what: Nature, spool: Path) -> Source:
    """The source, by way of a copy in the spool where the file itself will not do."""
    if not (what.encoding or (source.compression and source.kind in _UNPACK_FIRST)):
        return source
    from cleanse.sources.spool import transcode, unpack  # noqa: PLC0415 - rarely needed

    path = (
        transcode(source.path, source.compression, what.encoding, spool, source.index)
        if what.encoding
        else unpack(source.path, str(source.compression), spool, source.index)
    )
    return replace(
        source,
        path=path,
        compression=None,
        n_bytes=Path(path).stat().st_size,
        transcoded_from=what.encoding,
        expanded_from=source.n_bytes if source.compression else 0,
        changed_ns=None,
    )


def _cuts(source: Source, options: ReadOptions) -> list[Cut]:
    if source.kind in _UNPACK_FIRST:
        from cleanse.sources.arrowfiles import cuts  # noqa: PLC0415 - loads the Parquet reader

        return cuts(source, options)
    if source.kind not in ("jsonl", "text") or source.compression:
        return [(0, source.n_bytes, 0)]
    size = options.shard_bytes
    if size < 1:
        raise SourceError(f"shards of {size} bytes: expected at least 1")
    return [(at, min(at + size, source.n_bytes), 0) for at in range(0, source.n_bytes, size)] or [(0, 0, 0)]
