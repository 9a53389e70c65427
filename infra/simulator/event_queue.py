"""What happens when: events in order of time, those of one time in the order in which they were written
down."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Calendar:
    """The clock of a simulated world. It does not advance between events."""

    def __init__(self, start: float = 0.0) -> None:
        self.start = start
        self.now = start
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def at(self, time: float, do: Callable[[], None]) -> None:
        """Write an event down. One of the past happens at once when the clock next moves."""
        heapq.heappush(self._events, (max(time, self.now), next(self._number), do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """The same, from now on."""
        self.at(self.now + seconds, do)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.now - self.start

    @property
    def next(self) -> float | None:
        """When the next event is; None if there is none any more."""
        return self._events[0][0] if self._events else None

    def advance(self, until: float) -> int:
        """Let all happen that is due up to a time, and how much that was."""
        done = 0
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()
            done += 1
        self.now = max(self.now, until)
        return done
