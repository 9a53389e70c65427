"""Everything that is promised of one loop, as the docs have it: ``python -m benchmarks.autoscaler.figures``.

Each is measured in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks.autoscaler import burst, diverse, loop, scale_in, waiting


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, and what came of it."""

    what: str
    bar: str
    seconds: float
    """By the clock on the wall."""
    cpu: float
    """Of a processor: what a busy machine changes less."""
    mib: float
    """The most memory that its process has held."""
    came: str
    """What the loop came to."""


def _loop() -> tuple[float, str]:
    found = loop.whole()
    return found.seconds, f"{found.outcomes['starting']:,} start, {found.outcomes['fits']:,} fit"


def _different(pods: int = 30_000) -> tuple[float, str]:
    found = loop.whole(pods, diverse=True)
    waits = f", {found.outcomes['waits']:,} wait" if found.outcomes["waits"] else ""
    return found.seconds, f"{found.outcomes['starting']:,} start{waits}"


def _burst() -> tuple[float, str]:
    found = burst.measure(50_000)
    return found.seconds, f"{found.placed:,} placed"


def _diverse() -> tuple[float, str]:
    found = diverse.measure(20_000)
    return found.seconds, f"{found.rate:,.0f} pods/s, {found.nodes:,} nodes"


def _scale_in() -> tuple[float, str]:
    found = scale_in.measure()
    return found.seconds, f"{sum(found.actions.values()):,} actions"


def _waiting() -> tuple[float, str]:
    found = waiting.measure(10_000, diverse=True)
    return found.seconds, f"{found.known:,} starts, {found.bytes / 1e3:,.0f} kB"


_MEASURED: Final[tuple[tuple[str, str, Callable[[], tuple[float, str]]], ...]] = (
    ("A loop: 1,000 nodes, 30,000 pods, from lists on", "5 s, 1 GiB", _loop),
    ("The same, no two pods alike", "5 s, 1 GiB", _different),
    ("60,000 pods on 1,000 nodes, no two alike", "12 s, 1 GiB", partial(_different, 60_000)),
    ("100,000 pods on 1,000 nodes, no two alike", "20 s, 1 GiB", partial(_different, 100_000)),
    ("A place for 50,000 equal pods", "3 s", _burst),
    ("A place for 20,000 pods of five families, 400 types", "4 s, 4,040 nodes", _diverse),
    ("What goes of 2,000 nodes with 80,000 pods", "3 s", _scale_in),
    ("Starts of 10,000 that wait, no two alike, every 30 s", "2 s", _waiting),
)


def _one(number: int) -> Figure:
    what, bar, work = _MEASURED[number]
    seconds, came = work()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Figure(what, bar, seconds, _cpu(work), used, came)


def _cpu(work: Callable[[], Any]) -> float:
    """Processor's time of the same once more: what is measured is asked of another clock."""
    clock, time.perf_counter = time.perf_counter, time.process_time
    try:
        return float(work()[0])
    finally:
        time.perf_counter = clock


def rows() -> Iterator[Figure]:
    """One after the other."""
    for number in range(len(_MEASURED)):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            yield pool.apply(_one, (number,))


def main() -> None:
    """Print it."""
    sys.stdout.write(
        "| Figure | Bar | Processor | Wall | Memory | What came of it |\n|---|---|---:|---:|---:|---|\n"
    )
    for each in rows():
        sys.stdout.write(
            f"| {each.what} | {each.bar} | {each.cpu:.1f} s | {each.seconds:.1f} s | {each.mib:.0f} MiB | "
            f"{each.came} |\n"
        )


if __name__ == "__main__":
    main()
