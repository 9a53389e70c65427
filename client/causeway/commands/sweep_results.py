"""What is known about a search at one moment: its trials and their states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from causeway.job import Job
from causeway.search.engine import Engine
from causeway.search.fields import Sweep
from causeway.search.trials import Trial
from causeway.series import finite


def described(job: Job) -> list[str]:
    """Describe the search space in a few lines."""
    sweep = job.sweep
    assert sweep is not None
    rule = sweep.stop.rule
    stops = "no trial is stopped early" if rule == "none" else f"{rule} stops trials early"
    together = min(sweep.parallel, sweep.trials)
    return [
        f"  search   {', '.join(sweep.parameters)}: {sweep.goal} {sweep.metric}",
        f"  trials   {sweep.trials}, {together} at once, by {sweep.sampler}; {stops}",
    ]


def word(trial: Trial) -> str:
    """Return the state of a trial in words."""
    return "stopped early" if trial.state == "paused" else trial.state


@dataclass(frozen=True)
class Found:
    """A search and its trials, wherever they run."""

    name: str
    where: str
    """Its namespace, or ``this machine``."""
    person: str
    state: str
    reason: str
    started: float
    """Seconds since the epoch."""
    engine: Engine
    trials: Sequence[Trial]
    summary: Mapping[str, Any]
    """``counts``, ``importance``, ``notes``: the conductor's last results."""
    again: str = ""
    """The command that repeats a trial from its beginning, without the trial's name; empty if there is
    none."""

    @property
    def sweep(self) -> Sweep:
        return self.engine.sweep

    @property
    def best(self) -> Trial | None:
        return self.engine.best(self.trials)

    def run(self, trial: Trial) -> str:
        """Return the name of a trial's run."""
        return f"{self.name}-{trial.number}"

    @property
    def repeats(self) -> str:
        """Return the command that repeats the best trial; empty if there is no best trial yet."""
        best = self.best
        return f"{self.again} {self.run(best)}" if self.again and best is not None else ""

    def ranked(self) -> list[Trial]:
        """Return the trials, the best first and those without a value last."""
        sign = 1.0 if self.sweep.goal == "minimize" else -1.0

        def rank(trial: Trial) -> tuple[bool, float, int]:
            value = self.engine.value(trial)
            known = value is not None and math.isfinite(value)
            return not known, sign * value if known and value is not None else 0.0, trial.number

        return sorted(self.trials, key=rank)

    def plain(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        best = self.best
        return {
            "sweep": self.name,
            "where": self.where,
            "person": self.person,
            "state": self.state,
            "reason": self.reason,
            "metric": self.sweep.metric,
            "goal": self.sweep.goal,
            "limit": self.sweep.trials,
            "best": None if best is None else best.number,
            "repeat": self.repeats or None,
            "importance": dict(self.summary.get("importance", {})),
            "notes": list(self.summary.get("notes", ())),
            "trials": [
                {
                    "number": each.number,
                    "run": self.run(each),
                    "state": each.state,
                    "parameters": dict(each.parameters),
                    "value": None if (value := self.engine.value(each)) is None else finite(value),
                    "step": each.last_step,
                    "judged": each.judged,
                    "cause": each.cause,
                }
                for each in self.trials
            ],
        }
