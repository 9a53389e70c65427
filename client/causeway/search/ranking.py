"""Ranks trials from the best to the worst."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from causeway.search.fields import Sweep
from causeway.search.trials import Trial


def value(sweep: Sweep, trial: Trial) -> float | None:
    """The value by which complete trials are compared: the best that it reported; with ``wilcoxon``, whose
    steps are parts of one result, the mean. None before the first value, or if the mean is NaN."""
    if sweep.stop.rule == "wilcoxon":
        mean = fmean(each for _, each in trial.curve) if trial.curve else math.nan
        return mean if math.isfinite(mean) else None
    known = [each for _, each in trial.curve if math.isfinite(each)]
    return min(known, key=lambda each: loss(sweep, each), default=None)


def loss(sweep: Sweep, number: float) -> float:
    """Convert to a loss: lower is better, and NaN is worst."""
    if not math.isfinite(number):
        return math.inf
    return number if sweep.goal == "minimize" else -number


def ranked(sweep: Sweep, trials: Sequence[Trial]) -> list[Trial]:
    """Rank the trials that reported a value and did not fail. Those that are done come first, by value; then
    the others, by their last step, then by value."""
    values = {trial.number: value(sweep, trial) for trial in trials}

    def order(trial: Trial) -> tuple[bool, int, float, int]:
        done = trial.state == "done"
        found = values[trial.number]
        assert found is not None
        return (not done, 0 if done else -trial.last_step, loss(sweep, found), trial.number)

    known = [trial for trial in trials if trial.state != "failed" and values[trial.number] is not None]
    return sorted(known, key=order)
