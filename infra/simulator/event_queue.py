"""The queue of events: by time; simultaneous ones in the order in which they were added."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Calendar:
    """The clock of the simulation. It does not advance between events."""

    def __init__(self, start: float = 0.0) -> None:
        self.start = start
        self.now = start
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def at(self, time: float, do: Callable[[], None]) -> None:
        """Add an event. One in the past happens when the clock next advances."""
        heapq.heappush(self._events, (max(time, self.now), next(self._number), do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Add an event relative to now."""
        self.at(self.now + seconds, do)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.now - self.start

    @property
    def next(self) -> float | None:
        """When the next event is; None if there is none."""
        return self._events[0][0] if self._events else None

    def advance(self, until: float) -> int:
        """Process all events up to a time; returns their number."""
        done = 0
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()
            done += 1
        self.now = max(self.now, until)
        return done
