"""A wall clock without jumps.

Memory holds wall-clock times, because another process on another machine may read them. If the wall clock
jumped by an hour, every machine would seem idle for an hour, and every boot too slow. So this clock advances
with the monotonic clock (clock_gettime(2)), and follows the wall clock in small steps only. It accepts a
jump that persists, and all times in memory are then shifted by it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

SMALL: Final = 5.0
"""Maximum seconds by which the wall clock may differ between two reads: NTP corrections are smaller."""
BELIEVED: Final = 900.0
"""Seconds after which a jump is accepted. AWS refuses requests with a clock that is further off than this
(SigV4: 15 minutes), so a wrong clock does no harm until then."""


class Steady:
    """Seconds since the epoch. May be called from several threads."""

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.Lock()
        self._ahead = wall() - monotonic()
        self._since: float | None = None
        """Since when the wall clock has differed."""

    def __call__(self) -> float:
        with self._lock:
            now = self._monotonic()
            off = self._wall() - (now + self._ahead)
            if abs(off) <= SMALL:
                self._ahead += off
                self._since = None
            elif self._since is None:
                self._since = now
            return now + self._ahead

    def moved(self) -> float:
        """Accept a jump that has persisted. Returns its seconds, by which all times in memory must be
        shifted; usually 0."""
        self()
        with self._lock:
            if self._since is None or self._monotonic() - self._since < BELIEVED:
                return 0.0
            off = self._wall() - (self._monotonic() + self._ahead)
            self._ahead += off
            self._since = None
            return off
