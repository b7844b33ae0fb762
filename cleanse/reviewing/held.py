"""What a release needs to know of every quarantined record: where it belongs, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cleanse.atomic import committed
from cleanse.verdicts import Rows

FILE = "held.parquet"
"""In OUT/.cleanse; its rows are those of OUT/quarantine."""

SCHEMA = pa.schema(
    [
        pa.field("before", pa.int64(), nullable=False),  # clean records that stand before it in the input
        pa.field("sha256", pa.string()),  # ``content_digests``; null where the record has no form
    ]
)


def of_block(rows: Rows, held: Rows, digests: Sequence[str | None], n_clean: int) -> pa.RecordBatch:
    """The held records of one block.

    Args:
        rows: numbers of the block's records that have a form.
        held: numbers of those that are held, and of the strays.
        digests: (held,) their contents.
        n_clean: clean records before the block.
    """
    kept = rows[np.isin(rows, held, invert=True)]
    before = n_clean + np.searchsorted(kept, held)
    return pa.RecordBatch.from_arrays([pa.array(before, pa.int64()), pa.array(digests, pa.string())], schema=SCHEMA)


def assemble(parts: Iterable[tuple[Path, int]], target: Path) -> None:
    """One file from those of all units, in order; beside each stands how many clean records its unit has."""
    n_clean = 0
    with committed(target) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:
        for path, n_more in parts:
            table = pq.read_table(path)
            moved = pc.add(table.column("before"), n_clean).cast(pa.int64())
            writer.write_table(table.set_column(0, SCHEMA.field("before"), moved))
            n_clean += n_more
