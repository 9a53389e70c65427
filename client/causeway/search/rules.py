"""Early stopping: which running trials continue, and which paused ones are resumed.

``asha`` and ``hyperband`` judge at rungs, steps ``min · factor^k`` below ``max``. At a rung a trial is
compared with all that have reached it: one of ``factor`` continues, the others pause and keep their
checkpoint. A paused trial that is among the best once more trials have come is resumed. This is asynchronous
successive halving (Li et al., MLSys 2020), except that a trial that is immediately among the best does not
pause at all.

``median`` and ``wilcoxon`` are Optuna's pruners, asked once at each step, in order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from causeway.search import studies
from causeway.search.fields import FACTOR, RUNGS, Sweep
from causeway.search.ranking import loss
from causeway.search.trials import Decision, Resume, Trial


def judged(sweep: Sweep, trials: Sequence[Trial]) -> Iterator[Decision]:
    """Yield decisions on running trials, by number, then step."""
    running = sorted((trial for trial in trials if trial.state == "running"), key=lambda each: each.number)
    if sweep.stop.rule in RUNGS:
        ladder = _Ladder(sweep, trials)
        for trial in running:
            yield from _at_rungs(ladder, trial)
    elif sweep.stop.rule != "none":
        for trial in running:
            yield from _at_steps(sweep, trial, trials)


def promoted(sweep: Sweep, trials: Sequence[Trial]) -> Resume | None:
    """Return the paused trial to resume: one of the highest rung that has a paused trial among its best."""
    if sweep.stop.rule not in RUNGS:
        return None
    ladder = _Ladder(sweep, trials)
    paused = {trial.number: trial for trial in trials if trial.state == "paused" and trial.resumable}
    for rung in sorted({trial.judged for trial in paused.values()}, reverse=True):
        for bracket in range(ladder.brackets):
            pool = ladder.pool(bracket, rung)
            for number in pool.order[: pool.quota]:
                if number in paused and paused[number].judged == rung and math.isfinite(pool.losses[number]):
                    return Resume(number, rung)
    return None


def left_over(sweep: Sweep, trials: Sequence[Trial]) -> Resume | None:
    """Return the best trial of the highest rung. With fewer trials than ``factor``, no other would
    continue."""
    paused = [
        (-trial.judged, loss(sweep, point[1]), trial.number)
        for trial in trials
        if trial.state == "paused"
        and trial.resumable
        and (point := trial.at(trial.judged)) is not None
        and math.isfinite(point[1])
    ]
    rung, _, number = min(paused, default=(0, 0.0, 0))
    return Resume(number, -rung) if number else None


def rungs(sweep: Sweep) -> list[int]:
    """Return the steps at which trials are judged. Brackets of ``hyperband`` skip none, the first, the first
    two, …."""
    stop = sweep.stop
    assert stop.max is not None
    found, step = [], stop.min
    while step < stop.max:
        found.append(step)
        step *= stop.factor or FACTOR
    return found


@dataclass(frozen=True)
class _Pool:
    """The trials that have reached a rung."""

    losses: dict[int, float]
    """Loss by trial number."""
    factor: int

    @cached_property
    def order(self) -> list[int]:
        """Trial numbers, the best first."""
        return sorted(self.losses, key=lambda number: (self.losses[number], number))

    @property
    def quota(self) -> int:
        """How many continue."""
        return len(self.losses) // self.factor


class _Ladder:
    """The rungs of all brackets, with the trials that have reached them."""

    def __init__(self, sweep: Sweep, trials: Sequence[Trial]) -> None:
        self.sweep, self.trials = sweep, [trial for trial in trials if trial.state != "failed"]
        self.rungs = rungs(sweep)
        self.factor = sweep.stop.factor or FACTOR
        # In Hyperband's last bracket, nothing is stopped.
        self.brackets = len(self.rungs) + 1 if sweep.stop.rule == "hyperband" else 1
        self._pools: dict[tuple[int, int], _Pool] = {}

    def bracket(self, trial: Trial) -> int:
        """Draw a trial's bracket with Hyperband's sizes (Li et al., JMLR 2018), so that all brackets cost
        about the same."""
        count = self.brackets
        if count == 1:
            return 0
        sizes = [math.ceil(count / (left + 1) * self.factor**left) for left in reversed(range(count))]
        draw = random.Random(f"{self.sweep.seed}/bracket/{trial.number}")  # noqa: S311 - no secret
        return draw.choices(range(count), sizes)[0]

    def pool(self, bracket: int, rung: int) -> _Pool:
        if (bracket, rung) not in self._pools:
            losses = {
                trial.number: loss(self.sweep, point[1])
                for trial in self.trials
                if (point := trial.at(rung)) is not None and self.bracket(trial) == bracket
            }
            self._pools[bracket, rung] = _Pool(losses, self.factor)
        return self._pools[bracket, rung]


def _at_rungs(ladder: _Ladder, trial: Trial) -> Iterator[Decision]:
    bracket = ladder.bracket(trial)
    for rung in ladder.rungs[bracket:]:
        point = trial.at(rung)
        if point is None:
            return
        if rung <= trial.judged:
            continue
        pool = ladder.pool(bracket, rung)
        rank, count = pool.order.index(trial.number), len(pool.order)
        # A trial that cannot be resumed has only this chance, and a ranking of few trials means little.
        quota = pool.quota if trial.resumable else pool.quota or count
        passes = rank < quota and math.isfinite(point[1])
        reason = f"rank {rank + 1} of {count} at step {rung}, {quota} continue"
        if not math.isfinite(point[1]):
            reason = f"{point[1]} at step {point[0]}"
        yield Decision(trial.number, "pass" if passes else "pause", rung, point[1], reason)
        if not passes:
            return


def _at_steps(sweep: Sweep, trial: Trial, trials: Sequence[Trial]) -> Iterator[Decision]:
    """Decide once: stop at the first step for which the pruner says so, or pass all steps."""
    last: tuple[int, float] | None = None
    for step, value in trial.curve:
        if step <= trial.judged or step < sweep.stop.min:
            continue
        last = step, value
        if studies.stops(sweep, trial, trials, step):
            what = "median of whole trials" if sweep.stop.rule == "median" else "best trial, step by step"
            yield Decision(trial.number, "stop", step, value, f"worse than the {what}, at step {step}")
            return
    if last:
        yield Decision(trial.number, "pass", *last, f"not worse than others at step {last[0]}")
