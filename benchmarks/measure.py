"""How the benchmarks measure a command: CPU seconds and peak memory of its whole process tree."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, sleep

import psutil
import zstandard

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("CLEANSE_SHARED", ROOT.parent / "shared"))
_SAMPLE_EVERY_S = 0.05


@dataclass(frozen=True)
class Cost:
    """What a command took. CPU time is user + system of every process it waited for."""

    cpu_s: float
    wall_s: float
    peak_mb: float  # largest sum of resident sizes over the process tree, in 10^6 bytes: an upper bound
    returncode: int
    own_mb: float  # largest resident size of the command's own process


def run(command: Sequence[str], *, env: dict[str, str] | None = None, stdout: Path | None = None) -> Cost:
    """Runs a command and returns its cost. Output goes to ``stdout`` or nowhere; errors pass through."""
    before = os.times()
    start = perf_counter()
    with (stdout or Path(os.devnull)).open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, env={**os.environ, **(env or {})})
        peak = _Peak(process.pid)
        returncode = process.wait()
    wall = perf_counter() - start
    after = os.times()
    cpu = (after.children_user - before.children_user) + (after.children_system - before.children_system)
    peak.stop()
    return Cost(cpu, wall, peak.largest / 1e6, returncode, peak.own / 1e6)


class _Peak:
    """Samples the resident memory of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        self.largest = self.own = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(pid,), daemon=True)
        self._thread.start()

    def _watch(self, pid: int) -> None:
        while not self._done.is_set():
            try:
                root = psutil.Process(pid)
                family = [root, *root.children(recursive=True)]
            except psutil.Error:
                return
            sizes = []
            for member in family:
                try:
                    sizes.append(member.memory_info().rss)
                except psutil.Error:  # it ended between the listing and the look
                    sizes.append(0)
            self.own = max(self.own, sizes[0])
            self.largest = max(self.largest, sum(sizes))
            sleep(_SAMPLE_EVERY_S)

    def stop(self) -> None:
        self._done.set()
        self._thread.join()


def real_texts(path: Path | None = None) -> Iterator[str]:
    """Texts of a JSONL file (plain or .zst) with a field "text"; the evaluation data's training text by default."""
    source = path or SHARED / "data" / "train" / "text.jsonl.zst"
    if not source.exists():
        sys.exit(f"no text at {source}: give a JSONL file with a field 'text' by --data")
    with source.open("rb") as raw:
        stream = zstandard.ZstdDecompressor().stream_reader(raw) if source.suffix == ".zst" else raw
        for line in io.TextIOWrapper(stream, encoding="utf-8"):
            text = json.loads(line)["text"]
            if isinstance(text, str):
                yield text


def write_documents(out: Path, megabytes: float, data: Path | None = None) -> int:
    """Writes that many megabytes of JSON lines, repeating the data if it is too short. Returns the bytes."""
    written, wanted = 0, int(megabytes * 1e6)
    with out.open("wb") as file:
        while written < wanted:
            before = written
            for text in real_texts(data):
                written += file.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
                if written >= wanted:
                    break
            if written == before:
                sys.exit("the data holds no text at all")
    return written


def versions(*distributions: str) -> str:
    """The installed versions, for the results page."""
    return ", ".join(f"{name} {version(name)}" for name in distributions)
