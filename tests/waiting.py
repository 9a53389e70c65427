"""Waiting for what a test wants to see, with a deadline that a busy machine can meet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(
    look: Callable[[], Any],
    wanted: Callable[[Any], object] = bool,
    *,
    seconds: float = 300,
    every: float = 0.1,
    explain: Callable[[], str] = str,
) -> Any:
    """What ``look`` returns, as soon as that is ``wanted``. ``explain``: what to show if it never is."""
    deadline = time.monotonic() + seconds
    while not wanted(seen := look()):
        assert time.monotonic() < deadline, f"after {seconds:g} s: {seen!r}\n{explain()}"
        time.sleep(every)
    return seen
