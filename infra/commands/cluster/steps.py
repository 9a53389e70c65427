"""Work in steps that a person sees: each named before it is done, and what it did after."""

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
"""Does a step, and says in a few words what it did."""


@dataclass
class Steps:
    """A run, entered for as long as it lasts. ``again`` is the command that takes it up where it stopped."""

    again: str
    done: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """What went wrong and stopped nothing else."""
    destroyed: set[str] = field(default_factory=set)
    """What was taken away, as ``--destroy`` names it."""
    begun: str = ""
    """The step that was begun last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Say where a Ctrl-C stopped it: one comes between two steps as well."""
        if kind is None or not issubclass(kind, KeyboardInterrupt) or not self.begun:
            return
        ended = bool(self.done) and self.done[-1]["step"] == self.begun
        where = f"{'after' if ended else 'in'} step {len(self.done) + (not ended)}, {self.begun}"
        note(f"    stopped {where}. What is done stays; continue with: {self.again}")

    def step(self, title: str, work: Work) -> None:
        """Do one. Whatever it raises is passed on, with where it stopped said. What it says itself goes to
        standard error: the other one is for the result of the whole run."""
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
        """Something failed that need not stop the rest."""
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
    """Ask until it is so, or the time is up: False then."""
    deadline = clock() + seconds
    while not what():
        if clock() >= deadline:
            return False
        sleep(beat)
    return True
