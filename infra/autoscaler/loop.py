"""The loop: read → decide → save memory → act → report.

Memory is saved before any action. So if a process is killed, its successor reads the current state again,
and the memory is never older than the actions. A process that cannot save, because another one took over,
does nothing.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from infra.autoscaler import executor
from infra.autoscaler import memory as remembered
from infra.autoscaler.config import Config
from infra.autoscaler.decision import Decision, Done, FreeNode, Release, SetDesired, TaintNode, Terminate
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed.snapshot import Snapshot
from infra.autoscaler.steady_clock import Steady
from infra.errors import CausewayError

_V = TypeVar("_V")

_LOG: Final = logging.getLogger(__name__)

LONGEST_PAUSE: Final = 120.0
"""Maximum seconds between loops, however often they fail."""


class Store(Protocol):
    """Persistent storage of the memory."""

    def load(self) -> Memory:
        """The stored memory; raises if it cannot be read."""

    def save(self, memory: Memory) -> None:
        """Store the memory; raises if that fails, or another process has written since our last write."""


class Lease(Protocol):
    """Whether this process may write."""

    def held(self) -> bool:
        """Whether the lease is held, by our own clock: cheap, and False before another process may hold
        it."""


class Cycle(Struct, frozen=True):
    """One loop, as input of metrics, events, notices and logs."""

    at: float
    seconds: float = 0.0
    leading: bool = True
    """Whether the lease was held; if not, nothing was read."""
    dry: bool = False
    snapshot: Snapshot | None = None
    """None if the state could not be read."""
    decision: Decision | None = None
    results: tuple[Done, ...] = ()
    error: str | None = None
    """Why the loop failed."""


class Parts(Struct, frozen=True):
    """The dependencies of the loop."""

    read: Callable[[], Snapshot]
    """Read a snapshot; raises if too little is known to decide anything."""
    decide: Callable[[Snapshot, Memory, Config, float], Decision]
    store: Store
    lease: Lease | None
    """None if nothing is written."""
    kube: executor.Kube
    aws: executor.Aws
    observers: Sequence[Callable[[Cycle], None]] = ()
    """Called after each cycle; exceptions are logged."""


class Loop:
    """One controller."""

    def __init__(
        self,
        config: Config,
        parts: Parts,
        *,
        dry: bool = False,
        stop: Event | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.stop = stop or Event()
        self.last: float | None = None
        """When a loop last ended without an error, in ``clock``'s time."""
        self.turned = time.monotonic()
        """When a loop last ended, successful or not: a process in which none ends should be restarted."""
        self._config = config
        self._parts = parts
        self._dry = dry or config.dry_run
        self._clock = clock or Steady()
        self._memory: Memory | None = None
        self._saved: Memory | None = None
        self._failures = 0

    @property
    def memory(self) -> Memory:
        """The current memory; empty before the first loop."""
        return self._memory or Memory()

    def run(self) -> None:
        """Run until stopped. Actions in progress are then finished; no others are started."""
        while not self.stop.is_set():
            begun = time.monotonic()
            self.once()
            self.stop.wait(max(0.0, self.pause() - (time.monotonic() - begun)))

    def pause(self) -> float:
        """Seconds from the start of a loop to the next: longer after failures, up to a limit."""
        interval = float(self._config.interval)
        return min(interval * 2.0 ** min(self._failures, 16), max(LONGEST_PAUSE, interval))

    def once(self) -> Cycle:
        """Run one loop. Never raises: errors are in the cycle."""
        begun = time.monotonic()
        cycle = Cycle(at=self._clock(), dry=self._dry)
        try:
            cycle = self._cycle(cycle)
            self._failures = 0
            self.last = self._clock()
        except Exception as problem:
            # Another process may have written meanwhile, so the memory is read again.
            self._memory = self._saved = None
            self._failures += 1
            # Only a bug is logged with its traceback.
            _LOG.error("the loop failed: %s", problem, exc_info=not isinstance(problem, CausewayError))
            cycle = replace(cycle, error=f"{type(problem).__name__}: {problem}")
        cycle = replace(cycle, seconds=time.monotonic() - begun)
        for observer in self._parts.observers:
            try:
                observer(cycle)
            except Exception:
                _LOG.exception("an observer failed")
        self.turned = time.monotonic()
        return cycle

    def _cycle(self, cycle: Cycle) -> Cycle:
        if not self._may():
            self._memory = self._saved = None
            return replace(cycle, leading=False)
        memory = self._memory
        if memory is None:
            memory = self._saved = self._parts.store.load()
        if isinstance(self._clock, Steady) and (by := self._clock.moved()):
            _LOG.warning("the clock was set by %+.0f s: what is remembered moves with it", by)
            memory = remembered.moved(memory, by)
        snapshot = self._parts.read()
        decision = self._parts.decide(snapshot, memory, self._config, self._clock())
        self._save(decision.memory)
        results = executor.run(
            decision,
            self._parts.kube,
            self._parts.aws,
            self._config,
            dry=self._dry,
            go_on=lambda: self._may() and not self.stop.is_set(),
        )
        # Not saved separately: the next loop does that, and if there is none, little is lost.
        self._memory = kept(memory, decision, results)
        return replace(cycle, at=decision.at, snapshot=snapshot, decision=decision, results=results)

    def _may(self) -> bool:
        return self._dry or self._parts.lease is None or self._parts.lease.held()

    def _save(self, memory: Memory) -> None:
        if not self._dry and memory != self._saved:
            self._parts.store.save(memory)
            self._saved = memory


def kept(before: Memory, decision: Decision, results: Sequence[Done]) -> Memory:
    """The decision's memory without actions that were not executed, as if they had not been decided."""
    resizes = dict(decision.memory.resizes)
    drains = dict(decision.memory.drains)
    bookings = decision.memory.bookings
    for each in results:
        action, result = each.action, each.result
        if isinstance(action, SetDesired) and action.group in resizes:
            if not result.written:
                _restore(resizes, before.resizes, action.group)
            elif result.desired is not None:
                resizes[action.group] = replace(resizes[action.group], to=result.desired)
        elif isinstance(action, TaintNode | FreeNode | Terminate | Release) and not result.written:
            _restore(drains, before.drains, action.node)
        if result.status == "planned":
            bookings = before.bookings
    return replace(decision.memory, resizes=resizes, drains=drains, bookings=bookings)


def _restore(now: dict[str, _V], before: dict[str, _V], key: str) -> None:
    if key in before:
        now[key] = before[key]
    else:
        now.pop(key, None)


_NEW_OBJECTS: Final = 100_000
"""Number of new objects before a garbage collection. A list of pods creates a million objects that stay and
have no cycles: scanning them repeatedly takes a third of a loop."""


def collect_seldom() -> None:
    """Make Python's garbage collector run rarely. Objects without cycles, nearly all here, are freed
    immediately anyway."""
    gc.set_threshold(_NEW_OBJECTS, 50, 100)
