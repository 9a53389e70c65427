"""The time of day without its jumps.

Memory holds wall-clock times, because another process on another machine may read them. If the wall clock
jumped by an hour, every machine would seem idle for an hour, and every boot too slow. So this clock advances
with the monotonic clock (clock_gettime(2)), and follows the wall clock in small steps only. It accepts a jump
that persists, and all times in memory are then shifted by it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

SMALL: Final = 5.0
"""Seconds between two looks by which the time of day may differ: what NTP corrects as it goes."""
BELIEVED: Final = 900.0
"""Seconds after which another time of day is believed. One that is further off than this is refused by AWS
(SigV4: 15 minutes), so that a wrong one is refused."""


class Steady:
    """Seconds since the epoch. May be called from several threads."""

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.Lock()
        self._ahead = wall() - monotonic()
        self._since: float | None = None
        """Since when the time of day is elsewhere."""

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
        """Believe a time of day that has been elsewhere for long. By how many seconds it is later, and so is
        all that is remembered: 0 nearly always."""
        self()
        with self._lock:
            if self._since is None or self._monotonic() - self._since < BELIEVED:
                return 0.0
            off = self._wall() - (self._monotonic() + self._ahead)
            self._ahead += off
            self._since = None
            return off
