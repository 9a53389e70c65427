"""What is known of a trial, and what is to be done with it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

Value: TypeAlias = bool | int | float | str
Parameters: TypeAlias = Mapping[str, Value]
"""By name, those of the chosen branches included."""
State: TypeAlias = Literal["running", "done", "paused", "stopped", "failed"]
"""``running``: it has a run that has not ended, be it in a queue or preempted. ``done``: its program ended by
itself. ``paused``: stopped at a rung, and may be resumed. ``stopped``: for good, by a rule or a person."""


@dataclass(frozen=True)
class Trial:
    """A trial as it is recorded."""

    number: int
    """From 1."""
    parameters: Parameters
    reports: tuple[tuple[int, float], ...] = ()
    """(step, value) of the sweep's metric, as they arrived: of a step that was reported again, the first
    counts."""
    state: State = "running"
    judged: int = 0
    """The step of the last decision that was recorded (``Decision.step``)."""
    resumable: bool = False
    """Whether it has a checkpoint to go on from."""
    cause: str = ""
    """Why it failed, in a line."""
    seen: int = 0
    """The highest step that it reported of any metric."""

    @cached_property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """Its reports in order of steps, one a step."""
        first: dict[int, float] = {}
        for step, value in self.reports:
            first.setdefault(step, value)
        return tuple(sorted(first.items()))

    def at(self, step: int) -> tuple[int, float] | None:
        """Its first report of this step or a later one."""
        index = bisect_left(self.curve, (step,))
        return self.curve[index] if index < len(self.curve) else None

    @property
    def last_step(self) -> int:
        """0 before the first report."""
        return self.curve[-1][0] if self.curve else 0

    @property
    def known(self) -> bool:
        """Whether it reported a number at all."""
        return any(math.isfinite(value) for _, value in self.curve)


@dataclass(frozen=True)
class Start:
    """A new trial."""

    number: int
    parameters: Parameters


@dataclass(frozen=True)
class Resume:
    """A paused trial that goes on from its checkpoint: it turned out to be among the best of its rung."""

    number: int
    step: int
    """The rung that it is let pass, to be recorded as ``Trial.judged``."""


@dataclass(frozen=True)
class Decision:
    """A running trial is judged at a step. That is to be recorded as ``Trial.judged``, together with the new
    state: ``pause`` makes it ``paused``, ``stop`` ``stopped``."""

    number: int
    action: Literal["pass", "pause", "stop"]
    step: int
    value: float
    reason: str
    """In a line: ``rank 7 of 9 at step 3, 3 go on``."""


@dataclass(frozen=True)
class End:
    """The search is over. What still runs then is to be stopped."""

    kind: Literal["done", "failed"]
    reason: str
