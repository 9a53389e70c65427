"""How long a process takes from its start to its end, and how much memory it held at most."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

ONCE: Final = Path(__file__).with_name("once.py")
RUNS: Final = 7


class BenchmarkError(Exception):
    """A command that was to be measured failed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The medians of some runs, and the most memory of them all."""

    seconds: float
    """From start to end, by the clock on the wall."""
    cpu: float
    """Of all processors together: what a busy machine changes less. Zero where it was not measured."""
    mib: float
    """Zero where it was not a process of its own."""
    runs: int = 1


def process(
    command: Sequence[str],
    folder: Path,
    *,
    runs: int = RUNS,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] = lambda: None,
    ok: tuple[int, ...] = (0,),
) -> Measured:
    """Run a command so many times; ``before`` each run is not counted.

    ``ok``: exit codes that count as done. ``BenchmarkError`` with the end of what it said for any other.
    """
    found = []
    for _ in range(runs):
        before()
        found.append(_once(command, folder, environment or {}, ok))
    return median_of(found)


def call(work: Callable[[], object], runs: int = RUNS) -> Measured:
    """Call it so many times in this process."""
    found = []
    for _ in range(runs):
        start, cpu = time.perf_counter(), cpu_seconds()
        work()
        found.append(Measured(time.perf_counter() - start, cpu_seconds() - cpu, 0))
    return median_of(found)


def median_of(found: Sequence[Measured]) -> Measured:
    return Measured(
        seconds=median(one.seconds for one in found),
        cpu=median(one.cpu for one in found),
        mib=max(one.mib for one in found),
        runs=sum(one.runs for one in found),
    )


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system


def _usual() -> dict[str, str]:
    """Our environment without what would keep Python from caching compiled modules, as most users have it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _once(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], ok: tuple[int, ...]
) -> Measured:
    with TemporaryDirectory() as scratch:
        result = Path(scratch) / "took"
        ran = subprocess.run(
            [sys.executable, "-I", "-S", str(ONCE), str(result), *command],
            cwd=folder,
            env={**_usual(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        said = ran.stdout.decode("utf-8", errors="replace")[-2000:]
        if ran.returncode:
            raise BenchmarkError(f"{' '.join(command)}: {said}")
        seconds, cpu, kib, code = map(float, result.read_text().split())
        if int(code) not in ok:
            raise BenchmarkError(f"{' '.join(command)}: exit code {int(code)}\n{said}")
    return Measured(seconds, cpu, kib / 1024)
