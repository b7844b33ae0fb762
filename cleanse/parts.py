"""The files that one unit's records go to, all written at once and committed together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cleanse.atomic import committed
from cleanse.blocks import RawLines
from cleanse.json_lines import lines
from cleanse.mending import Mended
from cleanse.quarantine import schema_for
from cleanse.records import FINDINGS_SCHEMA
from cleanse.reviewing import held
from cleanse.writers import HUGGINGFACE, quarantine_features, with_features

if TYPE_CHECKING:
    from typing_extensions import Self

CLEAN, QUARANTINE = ".clean.arrow", ".quarantine.arrow"
HELD, FINDINGS, LINES = f".{held.FILE}", ".findings.parquet", ".jsonl"


def quarantine_schema(clean: pa.Schema) -> pa.Schema:
    """The clean columns and the ``cleanse_*`` columns, with what ``datasets`` must know about them."""
    text = (clean.metadata or {}).get(HUGGINGFACE)
    features = orjson.loads(text)["info"]["features"] if text else None
    return with_features(schema_for(clean), quarantine_features(features))


class PartWriters:
    """Open parts of one unit: clean (Arrow, and JSON lines if asked for), quarantine, and findings."""

    def __init__(self, path: Callable[[str], Path], schema: pa.Schema, emit: tuple[str, ...]) -> None:
        """``path`` gives the place of a part by its suffix; ``schema`` is that of the clean records."""
        self._path = path
        self._schema = schema
        self._emit_lines = "jsonl" in emit
        self._stack = ExitStack()
        self._rows = {"clean": 0, "quarantine": 0, "findings": 0}
        self._lines: BinaryIO | None = None

    @staticmethod
    def suffixes(emit: tuple[str, ...]) -> tuple[str, ...]:
        """Of all parts that are written."""
        lines = (LINES,) if "jsonl" in emit else ()
        return (CLEAN, QUARANTINE, HELD, FINDINGS, *lines)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._clean = self._arrow(stack, CLEAN, self._schema)
            self._quarantine = self._arrow(stack, QUARANTINE, quarantine_schema(self._schema))
            path = stack.enter_context(committed(self._path(HELD)))
            self._held = stack.enter_context(pq.ParquetWriter(path, held.SCHEMA))
            path = stack.enter_context(committed(self._path(FINDINGS)))
            self._findings = stack.enter_context(pq.ParquetWriter(path, FINDINGS_SCHEMA))
            if self._emit_lines:
                path = stack.enter_context(committed(self._path(LINES)))
                self._lines = stack.enter_context(path.open("wb"))
            self._stack = stack.pop_all()
        return self

    def _arrow(self, stack: ExitStack, suffix: str, schema: pa.Schema) -> pa.ipc.RecordBatchStreamWriter:
        path = stack.enter_context(committed(self._path(suffix)))
        file = stack.enter_context(pa.OSFile(str(path), "wb"))
        return stack.enter_context(pa.ipc.new_stream(file, schema))

    def clean(self, mended: Mended, keep: NDArray[np.bool_], raw: RawLines | None) -> None:
        """Writes the records of a batch for which ``keep`` holds.

        Args:
            mended: the batch after its repairs.
            keep: (rows,) whether each record stays.
            raw: the bytes of each record, where the input has a record per line: repeated as they are for records
                that no repair touched.
        """
        batch = mended.batch if keep.all() else mended.batch.filter(pa.array(keep))
        if batch.num_rows:
            self._clean.write_batch(batch)
        self._rows["clean"] += batch.num_rows
        if self._lines is not None:
            for chunk in lines(mended, keep, raw):
                self._lines.write(chunk)

    def quarantine(self, batch: pa.RecordBatch, held_of_batch: pa.RecordBatch) -> None:
        """Writes quarantined records (``quarantine_schema``), and what a release must know of them."""
        self._quarantine.write_batch(batch)
        self._held.write_batch(held_of_batch)
        self._rows["quarantine"] += batch.num_rows

    def findings(self, found: pa.Table) -> None:
        """Writes findings, by row."""
        self._findings.write_table(found)
        self._rows["findings"] += found.num_rows

    def rows(self) -> dict[str, int]:
        """How many rows went to each part so far."""
        return dict(self._rows)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
