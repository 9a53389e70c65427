"""The verdict: unhealthy soon, healthy again late, and later each time.

A node that comes and goes does more harm than one that is out: jobs start on it and die. So a machine must be
without fault for ``good_after`` checks, and for twice as many each time that it fell ill within a day.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpu_health.files import replace
from gpu_health.findings import Findings, Weight
from gpu_health.settings import Settings
from gpu_health.smi import Process

DAY = 86_400


@dataclass
class State:
    """What is remembered from check to check, also across a reboot."""

    boot: str = ""
    sick: bool = False
    bad: int = 0
    """Checks in a row with a passing fault."""
    good: int = 0
    """Checks in a row without any."""
    fell_ill: list[int] = field(default_factory=list)
    """When, within the last day."""
    most: int = 0
    """The most GPUs at one time since the boot."""
    forgiven: int = 0
    """Xids up to then are dealt with."""
    left: Process | None = None
    """A `nvidia-smi` that can't be ended."""
    told: bool = False
    """Whether the cluster knows."""
    why: str = ""
    """Why it is unhealthy."""

    @classmethod
    def read(cls, path: Path) -> State:
        """A new state if there is none, or it cannot be parsed: the cluster is then updated again."""
        try:
            kept: dict[str, Any] = json.loads(path.read_text())
            left = kept.pop("left", None)
            return cls(**kept, left=Process(**left) if left else None)
        except (OSError, ValueError, TypeError):
            return cls()

    def write(self, path: Path) -> None:
        replace(path, json.dumps(asdict(self), indent=2))

    def begin(self, boot: str) -> None:
        """A boot resets GPUs and the kernel's log; a verdict outlives it until the checks say otherwise."""
        if boot != self.boot:
            self.boot, self.bad, self.good, self.most, self.left, self.told = boot, 0, 0, 0, None, False

    def forget(self, now: int) -> None:
        """After a repair: ignores earlier Xids and faults. `good_after` checks still have to pass."""
        self.forgiven, self.fell_ill, self.good, self.bad = now, [], 0, 0


def decide(state: State, findings: Findings, settings: Settings, now: int) -> None:
    """Note a check in ``state`` and bring its verdict up to date."""
    lasting, passing = findings.weigh(Weight.LASTING), findings.weigh(Weight.PASSING)
    state.good = 0 if lasting or passing else state.good + 1
    state.bad = state.bad + 1 if passing else 0
    state.fell_ill = [each for each in state.fell_ill if each > now - DAY]
    if lasting or passing:
        state.why = findings.summary() if state.sick or lasting or _stays(state, settings) else state.why
    if not state.sick and (lasting or _stays(state, settings)):
        state.sick, state.told = True, False
        state.fell_ill.append(now)
    elif state.sick and state.good >= patience(state, settings):
        state.sick, state.told, state.why = False, False, ""


def patience(state: State, settings: Settings) -> int:
    """Checks without fault that are asked for."""
    again = max(len(state.fell_ill) - 1, 0)
    return settings.good_after << min(again, 8)


def _stays(state: State, settings: Settings) -> bool:
    return state.bad >= settings.bad_after
