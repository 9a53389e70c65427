"""Preemption: fair sharing between queues, priority within one.

Rules S2-a and S2-b of Kueue's fair sharing (KEP-1714): a workload in another queue is preempted if its queue
afterwards still has at least the share that the preempting queue will have; else if its queue has a larger
share now. A queue within its own quota reclaims whatever others borrow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from typing import TypeAlias

from infra.simulator.kueue.quota import Key, Ledger, Use
from infra.simulator.kueue.workload import Workload

Usage: TypeAlias = Callable[[str], float]
"""Usage of a namespace, by which workloads in one queue are ordered."""


def candidates(
    ledger: Ledger, admitted: Iterable[Workload], coming: Workload, keys: Sequence[Key]
) -> list[Workload]:
    """Possible victims: workloads with lower priority in its own queue, and all in queues that borrow what
    it needs."""
    return [
        each
        for each in admitted
        if any(key in each.use for key in keys)
        and (
            each.priority < coming.priority
            if each.queue == coming.queue
            else ledger.borrows(each.queue, keys)
        )
    ]


def victims(
    ledger: Ledger,
    admitted: Iterable[Workload],
    coming: Workload,
    use: Use,
    keys: Sequence[Key],
    usage: Usage | None,
) -> list[Workload]:
    """A minimal set of victims, by Kueue's heuristic, that makes room for ``use``; empty if there is none."""
    found = candidates(ledger, admitted, coming, keys)
    if not found:
        return []
    found.sort(key=cmp_to_key(lambda a, b: _compare(a, b, coming.queue, usage)))
    ledger.add(coming.queue, use)
    tried = _Trial(ledger, coming.queue, use, usage)
    try:
        done = tried.first(found, within=not ledger.borrows(coming.queue, keys)) or tried.second()
        return tried.fewest() if done else []
    finally:
        tried.undo()
        ledger.add(coming.queue, use, -1)


class _Trial:
    """The victims so far, whose usage is removed from the ledger."""

    def __init__(self, ledger: Ledger, queue: str, use: Use, usage: Usage | None) -> None:
        self._ledger = ledger
        self._queue = queue
        self._use = use
        self._usage = usage
        self._victims: list[Workload] = []
        self._passed_over: list[Workload] = []

    def first(self, found: Sequence[Workload], *, within: bool) -> bool:
        """Rule S2-a, and victims that need no rule."""
        left = _by_queue(found)
        while (queue := self._next(left)) is not None:
            if queue == self._queue or within:
                if self._take(left[queue].popleft()):
                    return True
                continue
            share = self._ledger.share(self._queue)
            while left[queue]:
                each = left[queue].popleft()
                self._ledger.add(queue, each.use, -1)
                after = self._ledger.share(queue)
                self._ledger.add(queue, each.use)
                if share <= after:
                    if self._take(each):
                        return True
                    break  # another queue may have the largest share by now
                self._passed_over.append(each)
        return False

    def second(self) -> bool:
        """Rule S2-b, for workloads that the first rule did not select."""
        left = _by_queue(self._passed_over)
        while (queue := self._next(left)) is not None:
            each = left.pop(queue)[0]
            if self._ledger.share(self._queue) < self._ledger.share(queue) and self._take(each):
                return True
        return False

    def fewest(self) -> list[Workload]:
        """Without victims that turn out to be unnecessary, the latest first."""
        kept = list(self._victims)
        for each in reversed(self._victims[:-1]):
            self._ledger.add(each.queue, each.use)
            if self._fits():
                kept.remove(each)
            else:
                self._ledger.add(each.queue, each.use, -1)
        self._victims = kept
        return list(kept)

    def undo(self) -> None:
        """Restore the removed usage."""
        for each in self._victims:
            self._ledger.add(each.queue, each.use)

    def _take(self, each: Workload) -> bool:
        self._ledger.add(each.queue, each.use, -1)
        self._victims.append(each)
        return self._fits()

    def _fits(self) -> bool:
        """Whether the new workload, which is in the ledger, fits."""
        return all(self._ledger.free[key] >= 0 for key in self._use)

    def _next(self, left: dict[str, deque[Workload]]) -> str | None:
        """The queue with the largest share that still has candidates."""
        best: tuple[float, str] | None = None
        for queue, those in left.items():
            if not those or (queue != self._queue and not self._ledger.borrowed(queue)):
                continue
            share = self._ledger.share(queue)
            if (
                best is None
                or share > best[0]
                or (share == best[0] and _compare(those[0], left[best[1]][0], self._queue, None) < 0)
            ):
                best = share, queue
        return best[1] if best is not None else None


def _by_queue(found: Iterable[Workload]) -> dict[str, deque[Workload]]:
    left: dict[str, deque[Workload]] = {}
    for each in found:
        left.setdefault(each.queue, deque()).append(each)
    return left


def _compare(a: Workload, b: Workload, queue: str, usage: Usage | None) -> int:
    """The order of victims: already being evicted, of another queue, higher usage, lower priority, newer."""
    if usage is not None and a.queue == b.queue and a.namespace != b.namespace:
        used = usage(b.namespace) - usage(a.namespace)
    else:
        used = 0.0
    ranks = (
        (b.leaving - a.leaving),
        (a.queue == queue) - (b.queue == queue),
        used,
        a.priority - b.priority,
        b.reserved - a.reserved,
        (a.key > b.key) - (a.key < b.key),
    )
    return next((1 if each > 0 else -1 for each in ranks if each), 0)
