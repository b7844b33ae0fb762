"""Kills scans at random moments, runs the same command again, and compares every output byte.

usage: python -m scripts.kill_test INPUT... [--kills 20] [--seed 0] [--shard-bytes 8MB] [--probe none] [--work DIR]

A run that nobody disturbed, with one worker, is the reference. Then: the same with two workers; and rounds in which
the whole process group gets SIGKILL one to four times, at moments drawn over the length of the reference run,
before the command is let through. Ends with 0 when clean/, quarantine/ and the Parquet files are the same bytes
every time.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

COMPARED = ("clean", "quarantine", "findings.parquet", "clean.jsonl", "triggers.parquet", "probe.parquet")


def digest(out: Path) -> dict[str, str]:
    """sha256 of every output file that must not depend on how the run went, by path inside ``out``."""
    files = [path for name in COMPARED for path in sorted([out / name, *(out / name).rglob("*")]) if path.is_file()]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@dataclass
class Trial:
    """One command line, run to its end or killed on its way."""

    inputs: Sequence[str]
    options: Sequence[str]
    seconds: float = 0.0  # what the reference run took
    problems: list[str] = field(default_factory=list)

    def command(self, out: Path, workers: int) -> list[str]:
        """The command line; only ``workers`` may differ between runs of one trial."""
        scan = [sys.executable, "-m", "cleanse", "scan", *self.inputs, "-o", str(out)]
        return [*scan, "--emit", "jsonl", "--workers", str(workers), "--quiet", *self.options]

    def run(self, out: Path, workers: int) -> dict[str, str]:
        """Runs to the end. Raises CalledProcessError when the scan fails."""
        subprocess.run(self.command(out, workers), check=True)  # noqa: S603 - our own command
        return digest(out)

    def kill_after(self, out: Path, workers: int, seconds: float) -> bool:
        """Starts a run and kills its process group after so many seconds; False when it had ended before."""
        process = subprocess.Popen(self.command(out, workers), start_new_session=True)  # noqa: S603
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        if process.returncode:
            self.problems.append(f"a resumed run ended with exit code {process.returncode}")
        return False


def trial(
    inputs: Sequence[str], work: Path, *, kills: int, seed: int, options: Sequence[str] = (), say: bool = True
) -> list[str]:
    """Runs the whole comparison in ``work``; returns what differed."""
    run = Trial(inputs, options)
    began = time.monotonic()
    reference = run.run(work / "reference", workers=1)
    run.seconds = time.monotonic() - began
    _compare(run, "two workers", reference, run.run(work / "two", workers=2))
    chance = random.Random(seed)
    done = rounds = 0
    while done < kills:
        out = work / f"killed{rounds}"
        moments = []
        for _ in range(min(kills - done, chance.randint(1, 4))):
            seconds = chance.uniform(0, run.seconds)
            if not run.kill_after(out, 1 + rounds % 2, seconds):
                break  # it was faster this time
            moments.append(round(seconds, 2))
        done += len(moments)
        _compare(run, f"killed after {moments} s", reference, run.run(out, workers=2 - rounds % 2))
        if say:
            print(
                f"round {rounds}: killed after {moments} s; {done} of {kills} kills; {len(run.problems)} problems",
                flush=True,
            )
        shutil.rmtree(out)
        rounds += 1
    return run.problems


def _compare(run: Trial, name: str, reference: dict[str, str], other: dict[str, str]) -> None:
    differing = sorted(path for path in {*reference, *other} if reference.get(path) != other.get(path))
    if differing:
        run.problems.append(f"{name}: {', '.join(differing)} differ")


def main() -> None:
    """Parses the command line and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard-bytes", default="8MB")
    parser.add_argument("--probe", default="none", help="as for cleanse scan; every run replays what was not yet done")
    parser.add_argument("--work", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        problems = trial(
            arguments.inputs,
            Path(folder),
            kills=arguments.kills,
            seed=arguments.seed,
            options=["--shard-bytes", arguments.shard_bytes, "--probe", arguments.probe],
        )
    print("\n".join(problems) or f"{arguments.kills} kills, one and two workers: the same bytes every time")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
