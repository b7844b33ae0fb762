"""What a scan was asked to do, checked, and told apart from how it is run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanse import __version__
from cleanse.errors import UsageError
from cleanse.probing.settings import ProbeSettings
from cleanse.sources import ReadOptions
from cleanse.storage.filesystem import without_secrets

if TYPE_CHECKING:
    from cleanse.trainer_view import TokenSource

EMITS = ("arrow", "jsonl", "parquet")
ALWAYS = ("reader", "corpus", "probe", "review")
DEDUPS = ("note", "exact", "near")
SUSPECTS = ("keep", "quarantine")
ENGINES = ("local", "ray")


@dataclass(frozen=True)
class ScanConfig:
    """A scan's request. ``identity`` holds what decides the output, the other fields only how it is reached."""

    inputs: tuple[str, ...]
    out: Path  # on a disk of this machine; with ``url`` what is needed of the output is copied there
    format: str = "auto"  # how columns make a training record: alpaca, messages, ...
    text_column: str | None = None
    packs: tuple[str, ...] = ("default",)
    tokens: TokenSource | None = None  # the tokenizer and the trainer's settings; None: rules about them do not apply
    probe: ProbeSettings | None = None  # the second witness; None: suspects stay unproven
    corpus: bool = True  # look across records: duplicates, floods, triggers
    dedup: str = "note"
    suspects: str = "keep"
    allow: tuple[Path, ...] = ()  # allow lists: what people released stays
    repair: bool = True
    emit: tuple[str, ...] = ("arrow",)
    engine: str = "local"
    workers: int = 0  # 0: as many as the processors this process may use, or the cluster has
    address: str | None = None  # of the cluster
    resources: tuple[tuple[str, float], ...] = ()  # what a worker that runs the model asks of the cluster
    read: ReadOptions = field(default_factory=ReadOptions)
    url: str | None = None  # the output goes to this place instead (``cleanse.storage.filesystem.output``)

    def __post_init__(self) -> None:
        if not self.inputs:
            raise UsageError("no input given: name at least one file, folder, glob, hub id, or - for stdin")
        for name in (*self.inputs, self.url or str(self.out)):
            if name != name.encode("utf-8", "replace").decode():  # bytes that no report could hold
                raise UsageError(f"{name!a}: expected a name that is UTF-8; rename the file or folder")
        # What readers and witnesses conclude needs its rules, whatever rules for texts were chosen.
        object.__setattr__(self, "packs", tuple(dict.fromkeys((*self.packs, *ALWAYS))))
        _one_of("dedup", self.dedup, DEDUPS)
        if self.dedup != "note" and not self.corpus:
            raise UsageError(f"dedup is {self.dedup!r}, but records are not compared with each other: leave corpus on")
        _one_of("suspects", self.suspects, SUSPECTS)
        _one_of("engine", self.engine, ENGINES)
        for emit in self.emit:
            _one_of("emit", emit, EMITS)
        if self.workers < 0:
            raise UsageError(f"workers is {self.workers}: give 1 or more, or 0 for one per processor")
        if self.engine == "local" and (self.address or self.resources):
            raise UsageError("an address and resources are for a cluster: give --engine ray as well")
        for name, amount in self.resources:
            if not name or not amount > 0:
                raise UsageError(f"resource {name!r} is {amount:g}: expected a name and an amount above 0, as GPU=1")

    @property
    def n_workers(self) -> int:
        """How many worker processes to use."""
        return self.workers or usable_processors()

    def identity(
        self, rules_fingerprint: str, tokens_fingerprint: str | None = None, allow: str | None = None
    ) -> dict[str, Any]:
        """All that decides the bytes of the output, except the content of the inputs. JSON-serialisable."""
        return {
            "version": __version__,
            "inputs": [without_secrets(name) for name in self.inputs],
            "format": self.format,
            "text_column": self.text_column,
            "packs": list(self.packs),
            "rules_fingerprint": rules_fingerprint,
            "tokenizer": self.tokens.tokenizer if self.tokens else None,
            "trainer": self.tokens.settings.to_json() if self.tokens else None,
            "tokens_fingerprint": tokens_fingerprint,
            "probe": self.probe.identity() if self.probe else None,
            "corpus": self.corpus,
            "dedup": self.dedup,
            "suspects": self.suspects,
            "allow": allow,
            "repair": self.repair,
            "emit": sorted({"arrow", *self.emit}),
            "max_record_bytes": self.read.max_record_bytes,
            "block_bytes": self.read.block_bytes,
            "shard_bytes": self.read.shard_bytes,
            "input_format": self.read.input_format,
        }


def usable_processors() -> int:
    """Processors this process may run on: an affinity mask or a container's cpuset counts, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """One line per setting whose value changed, for a message: ``suspects was 'keep', now 'quarantine'``."""
    lines: list[str] = []
    hidden: list[str] = []
    for key in [*before, *(key for key in after if key not in before)]:
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if key in _FINGERPRINTS:
            hidden.append(f"{_FINGERPRINTS[key]} changed")
        elif isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += [f"{key} {line}" for line in differences(old, new)]
        elif isinstance(old, Mapping) or isinstance(new, Mapping):
            lines.append(f"{key} was {'on' if old else 'off'}, now {'on' if new else 'off'}")
        else:
            lines.append(f"{key} was {old!r}, now {new!r}")
    return lines or hidden  # a fingerprint follows from what a line says already, as a rule


_FINGERPRINTS = {"rules_fingerprint": "the rules or their libraries", "tokens_fingerprint": "the tokenizer"}


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name} is {value!r}: expected one of {', '.join(known)}")
