"""Waiting for what a test wants to see, with a deadline that a busy machine can meet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def until(look: Callable[[], _T | None], seconds: float = 180, every: float = 0.1) -> _T:
    """What ``look`` returns, as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"{look} returned {seen!r} for {seconds} s"
        time.sleep(every)
    return seen
