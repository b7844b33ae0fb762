"""Megatron's samples: which documents each one was cut from, by the index files that Megatron caches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_PARTS = ("document_index.npy", "sample_index.npy", "shuffle_index.npy")


@dataclass(frozen=True)
class MegatronIndex:
    """The three arrays of a ``GPTDataset``, mapped from disk, never read whole.

    ``document_index`` (entries,): document ids in the order they were joined, over all epochs.
    ``sample_index`` (samples + 1, 2): the entry of ``document_index`` and the token offset where each sample starts.
    ``shuffle_index`` (samples,): the i-th sample fed is sample ``shuffle_index[i]``.
    """

    document_index: NDArray[np.integer]
    sample_index: NDArray[np.integer]
    shuffle_index: NDArray[np.integer]

    @classmethod
    def open(cls, where: str | Path) -> MegatronIndex:
        """Map the files.

        Args:
            where: one of the three files, the folder that holds one set of them, or their common prefix.

        Raises:
            ValueError: files are missing, there are several sets, or an array is not what it should be.
        """
        prefix = _prefix(Path(where))
        arrays = []
        for part in _PARTS:
            path = Path(f"{prefix}{part}")
            if not path.is_file():
                raise ValueError(f"no file {path}: Megatron's index is three files ending in {', '.join(_PARTS)}")
            arrays.append(np.load(path, mmap_mode="r", allow_pickle=False))
        documents, samples, shuffle = arrays
        if samples.ndim != 2 or samples.shape[1] != 2 or documents.ndim != 1 or shuffle.ndim != 1:  # noqa: PLR2004
            raise ValueError(f"{prefix}*: shapes {documents.shape}, {samples.shape}, {shuffle.shape} are no GPT index")
        if len(shuffle) > len(samples) - 1:
            raise ValueError(f"{prefix}*: {len(shuffle)} shuffled samples, but only {len(samples) - 1} samples")
        return cls(documents, samples, shuffle)

    def __len__(self) -> int:
        return len(self.shuffle_index)

    @property
    def documents(self) -> _Documents:
        """As ``row_ids``: the i-th sample fed -> the documents it was cut from."""
        return _Documents(self)


@dataclass(frozen=True)
class _Documents:
    index: MegatronIndex

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> list[int]:
        sample = int(self.index.shuffle_index[i])
        first = int(self.index.sample_index[sample][0])
        last = int(self.index.sample_index[sample + 1][0])
        return [int(d) for d in self.index.document_index[first : last + 1]]


def _prefix(where: Path) -> str:
    for part in _PARTS:
        if where.name.endswith(part):
            return str(where)[: -len(part)]
    if not where.is_dir():
        return str(where) if str(where).endswith("-") else f"{where}-"
    sets = sorted(str(p)[: -len(_PARTS[2])] for p in where.glob(f"*{_PARTS[2]}"))
    train = [p for p in sets if "train" in Path(p).name] or sets
    if len(train) != 1:
        names = ", ".join(Path(p).name for p in train) or "none"
        raise ValueError(f"{where} holds {len(train)} sets of index files ({names}): name one of them")
    return train[0]
