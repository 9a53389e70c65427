"""What runs left in the store: their workers' output, exit statuses and results.

``causeway.keep`` writes it in a pod; its docstring documents the keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Any

from causeway.cluster.store import Kept, Store
from causeway.runtime import STOPPED


@dataclass(frozen=True)
class Attempt:
    """One start of a run."""

    number: int
    parts: Mapping[str, Sequence[Kept]]
    """Worker (``worker-0``) → parts of its output, in order."""
    ends: Mapping[str, Kept]
    """Worker → its exit status."""


def attempts(store: Store, run: str) -> list[Attempt]:
    """Return the attempts of a run, the first one first."""
    parts: dict[int, dict[str, list[Kept]]] = {}
    ends: dict[int, dict[str, Kept]] = {}
    for kept in store.kept(run, "logs/"):
        worker, number, name = kept.name.split("/")
        parts.setdefault(int(number), {})
        if name.endswith("ended.json"):
            # Names are sorted: the last one of an attempt wins.
            ends.setdefault(int(number), {})[worker] = kept
        else:
            parts[int(number)].setdefault(worker, []).append(kept)
    return [Attempt(number, parts[number], ends.get(number, {})) for number in sorted(parts)]


@dataclass(frozen=True)
class Start:
    """One start of a worker. A preempted run starts again without a new attempt."""

    worker: str
    attempt: int
    at: int
    """Start time by the clock of its machine, in seconds since the epoch."""
    parts: Sequence[Kept]
    """Parts of its output, in order."""


def starts(store: Store, run: str) -> list[Start]:
    """Return the starts of all workers of a run that left output, the first one first."""
    found: dict[tuple[int, int, str], list[Kept]] = {}
    for kept in store.kept(run, "logs/"):
        worker, number, name = kept.name.split("/")
        at, _, part = name.partition("-")
        if part.endswith(".log"):
            found.setdefault((int(number), int(at), worker), []).append(kept)
    return [Start(worker, number, at, found[number, at, worker]) for number, at, worker in sorted(found)]


def lines(store: Store, start: Start) -> list[str]:
    """Return the output of one start, without the times."""
    return [text for _, _, text in _lines(store, start.worker, start.parts)]


def output(store: Store, attempt: Attempt) -> Iterator[tuple[str, str, str]]:
    """Yield (time, worker, line) of all workers, ordered by time."""
    return merge(*(_lines(store, worker, parts) for worker, parts in attempt.parts.items()))


def _lines(store: Store, worker: str, parts: Sequence[Kept]) -> Iterator[tuple[str, str, str]]:
    for part in parts:
        for line in store.read(part).decode("utf-8", "replace").splitlines():
            time, _, text = line.partition(" ")
            yield time, worker, text


def first_failure(store: Store, attempt: Attempt) -> Mapping[str, Any] | None:
    """Return the status that the runtime recorded for the worker that failed first; None if none failed."""
    ends = [json.loads(store.read(kept)) for kept in attempt.ends.values()]
    failed = [each for each in ends if each["exit"] not in (0, STOPPED)]
    return min(failed, key=lambda each: each.get("at", float("inf")), default=None)
