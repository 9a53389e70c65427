"""What is known of a sweep at one moment: its trials and what each is at."""

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
    """What is searched for, in a few lines."""
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
    """The state of a trial, for people."""
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
    """``counts``, ``importance``, ``notes``: as the conductor has computed them last."""
    again: str = ""
    """What repeats a trial from its beginning, without the trial's name; empty where nothing does."""

    @property
    def sweep(self) -> Sweep:
        return self.engine.sweep

    @property
    def best(self) -> Trial | None:
        return self.engine.best(self.trials)

    def run(self, trial: Trial) -> str:
        """The name of a trial's run."""
        return f"{self.name}-{trial.number}"

    @property
    def repeats(self) -> str:
        """The command that trains the best once more; empty before there is one."""
        best = self.best
        return f"{self.again} {self.run(best)}" if self.again and best is not None else ""

    def ranked(self) -> list[Trial]:
        """The best first; those without a number last."""
        sign = 1.0 if self.sweep.goal == "minimize" else -1.0

        def rank(trial: Trial) -> tuple[bool, float, int]:
            value = self.engine.value(trial)
            known = value is not None and math.isfinite(value)
            return not known, sign * value if known and value is not None else 0.0, trial.number

        return sorted(self.trials, key=rank)

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
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
