"""Runs calls that must not delay each other: each in its own thread, with a common timeout.

A call that times out continues in the background, and is not repeated meanwhile. After that, callers do not
wait longer for it than for the others, until it has answered in time again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, Final, TypeAlias

Key: TypeAlias = tuple[str, str]
"""Region, and what is read there."""

_GRACE: Final = 1.0
"""Extra seconds for calls that were late."""


class LateError(Exception):
    """A call did not return in time."""


class Background:
    """Reads in threads. For one caller at a time."""

    def __init__(self, deadline: float) -> None:
        """``deadline``: the maximum seconds of a round of calls."""
        self._deadline = deadline
        self._running: dict[Key, tuple[float, Future[Any]]] = {}
        self._late: set[Key] = set()

    def start(self, key: Key, work: Callable[[], Any]) -> Future[Any]:
        """Start a call. If the previous one is still running, the future fails with ``LateError``."""
        now = time.monotonic()
        if key in self._running:
            since, running = self._running[key]
            if not running.done():
                overdue: Future[Any] = Future()
                overdue.set_exception(LateError(f"no answer for {now - since:.0f} s"))
                return overdue
            if running.exception() is None:
                self._late.discard(key)
        future: Future[Any] = Future()
        self._running[key] = now, future

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as problem:
                future.set_exception(problem)

        # Not an executor's thread, for which the end of the process would wait.
        threading.Thread(target=run, name=f"aws {'/'.join(key)}", daemon=True).start()
        return future

    def gather(self, futures: Mapping[Key, Future[Any]]) -> dict[Key, Any]:
        """Key → result, or the exception in its place."""
        prompt = [future for key, future in futures.items() if key not in self._late]
        end = time.monotonic() + self._deadline
        wait(prompt, timeout=self._deadline)
        wait(futures.values(), timeout=max(0.0, min(_GRACE, end - time.monotonic())) if prompt else _GRACE)
        found: dict[Key, Any] = {}
        for key, future in futures.items():
            if not future.done():
                self._late.add(key)
                found[key] = LateError(f"no answer within {self._deadline:g} s")
            elif (problem := future.exception()) is not None:
                found[key] = problem
                if not isinstance(problem, LateError) and self._took(key) > _GRACE:
                    self._late.add(key)
            else:
                found[key] = future.result()
                self._late.discard(key)
        return found

    def _took(self, key: Key) -> float:
        return time.monotonic() - self._running[key][0]
