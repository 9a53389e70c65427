"""The record of a trial, and the decisions about it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

Value: TypeAlias = bool | int | float | str
Parameters: TypeAlias = Mapping[str, Value]
"""Values by name, including those of the chosen branches."""
State: TypeAlias = Literal["running", "done", "paused", "stopped", "failed"]
"""``running``: its run has not ended; it may be queued or preempted. ``done``: its program ended by itself.
``paused``: stopped at a rung; it may be resumed. ``stopped``: permanently, by a rule or a user."""


@dataclass(frozen=True)
class Trial:
    """A recorded trial."""

    number: int
    """Counted from 1."""
    parameters: Parameters
    reports: tuple[tuple[int, float], ...] = ()
    """(step, value) of the sweep's metric in order of arrival; for a step that was reported again, the first
    counts."""
    state: State = "running"
    judged: int = 0
    """The step of the last recorded decision (``Decision.step``)."""
    resumable: bool = False
    """Whether it has a checkpoint to resume from."""
    cause: str = ""
    """Why it failed, in one line."""
    seen: int = 0
    """The highest step at which it reported any metric."""

    @cached_property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """Its reports ordered by step, one for each step."""
        first: dict[int, float] = {}
        for step, value in self.reports:
            first.setdefault(step, value)
        return tuple(sorted(first.items()))

    def at(self, step: int) -> tuple[int, float] | None:
        """Return its first report at this step or later."""
        index = bisect_left(self.curve, (step,))
        return self.curve[index] if index < len(self.curve) else None

    @property
    def last_step(self) -> int:
        """Its last step; 0 before the first report."""
        return self.curve[-1][0] if self.curve else 0

    @property
    def known(self) -> bool:
        """Whether it has reported a number."""
        return any(math.isfinite(value) for _, value in self.curve)


@dataclass(frozen=True)
class Start:
    """Start a new trial."""

    number: int
    parameters: Parameters


@dataclass(frozen=True)
class Resume:
    """Resume a paused trial from its checkpoint: it is now among the best of its rung."""

    number: int
    step: int
    """The rung that it passes, to be recorded as ``Trial.judged``."""


@dataclass(frozen=True)
class Decision:
    """A decision about a running trial at a step, to be recorded as ``Trial.judged`` together with the new
    state: ``pause`` makes it ``paused``, ``stop`` ``stopped``."""

    number: int
    action: Literal["pass", "pause", "stop"]
    step: int
    value: float
    reason: str
    """In one line: ``rank 7 of 9 at step 3, 3 go on``."""


@dataclass(frozen=True)
class End:
    """The search is over. Trials that are still running are to be stopped."""

    kind: Literal["done", "failed"]
    reason: str
