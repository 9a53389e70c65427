"""Runs work in visible steps: the title of each is printed before, its result after."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from infra.commands.terminal import note
from infra.drive.progress import elapsed
from infra.errors import CausewayError

Work: TypeAlias = Callable[[], str]
"""Executes a step, and returns a short description of what it did."""


@dataclass
class Steps:
    """A run of steps, as a context manager. ``again`` is the command that continues an interrupted run."""

    again: str
    done: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Failures that did not stop the run."""
    destroyed: set[str] = field(default_factory=set)
    """Deleted objects, as named by ``--destroy``."""
    begun: str = ""
    """The step that was started last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Report where a Ctrl-C stopped the run, also if it came between two steps."""
        if kind is None or not issubclass(kind, KeyboardInterrupt) or not self.begun:
            return
        ended = bool(self.done) and self.done[-1]["step"] == self.begun
        where = f"{'after' if ended else 'in'} step {len(self.done) + (not ended)}, {self.begun}"
        note(f"    stopped {where}. What is done stays; continue with: {self.again}")

    def step(self, title: str, work: Work) -> None:
        """Run a step. Exceptions are passed on, after reporting where the run stopped. Output of the step
        goes to standard error, as standard output is for the result of the run."""
        number = len(self.done) + 1
        self.begun = title
        note(f"[{number}] {title}")
        began = time.monotonic()
        try:
            with redirect_stdout(sys.stderr):
                said = work()
        except CausewayError:
            note(
                f"    failed in step {number}, {title}. What is done stays; "
                f"fix the cause, then continue: {self.again}"
            )
            raise
        seconds = time.monotonic() - began
        took = f" ({elapsed(seconds)})" if seconds >= 1 else ""
        note(f"    {said}{took}")
        self.done.append({"step": title, "did": said, "seconds": round(seconds, 1)})

    def missed(self, what: str) -> None:
        """Record a failure that does not stop the run."""
        self.failures.append(what)
        note(f"    {what}")


def wait_for(
    what: Callable[[], bool],
    *,
    seconds: float,
    beat: float = 3.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Poll until ``what`` returns True. False after the timeout."""
    deadline = clock() + seconds
    while not what():
        if clock() >= deadline:
            return False
        sleep(beat)
    return True
