"""Named NumPy arrays in one Arrow file that is read by mapping it into memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes arrays of any shape: one row, a list column per array, its shape in the column's metadata."""
    fields, columns = [], []
    for name, array in arrays.items():
        flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        columns.append(pa.LargeListArray.from_arrays(pa.array([0, len(flat)], pa.int64()), flat))
        shape = ",".join(map(str, array.shape))
        fields.append(pa.field(name, columns[-1].type, metadata={"shape": shape}))
    schema = pa.schema(fields)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))


def read(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays, read-only, backed by the file: only what is touched is loaded."""
    with pa.memory_map(str(path)) as file:
        batch = pa.ipc.open_file(file).get_batch(0)
    arrays = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        shape = [int(n) for n in field.metadata[b"shape"].split(b",")]
        arrays[field.name] = column.values.to_numpy(zero_copy_only=False).reshape(shape)
    return arrays
