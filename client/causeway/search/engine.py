"""A search: given all trials so far, what to do next. No state, no clock, no I/O.

A conductor repeats::

    for decision in engine.judge(trials):      # record, then pause or stop the run
    while move := engine.propose(trials):      # record, then start or resume the run
        trials = applied(trials, move)
    if end := engine.end(trials): …

and may be killed between any two steps: with the same record it decides the same again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from causeway.search import ranking, rules, samplers, studies
from causeway.search.fields import Sweep
from causeway.search.space import size
from causeway.search.trials import Decision, End, Resume, Start, State, Trial


@dataclass(frozen=True)
class Engine:
    """Decides what to do next."""

    sweep: Sweep
    name: str
    """Name of the search."""
    since: int = 0
    """Failures of trials up to this number do not count: the search was resumed after them."""

    def propose(self, trials: Sequence[Trial]) -> Start | Resume | None:
        """Return the next trial to start or to resume; None if ``parallel`` are running, or if there is none.

        It depends only on ``sweep`` and the recorded trials; with ``random`` and ``grid``, only on the seed
        and the number. Raises CausewayError if the sampler's library is not installed.
        """
        if _running(trials) >= self.sweep.parallel or self._failures(trials):
            return None
        if resume := rules.promoted(self.sweep, trials):
            return resume
        if self._more(trials):
            number = max((trial.number for trial in trials), default=0) + 1
            parameters = samplers.proposed(self.sweep, number, trials)
            if parameters is not None:
                return Start(number, parameters)
        return self._last(trials)

    def judge(self, trials: Sequence[Trial]) -> tuple[Decision, ...]:
        """Return decisions on running trials, by number, then step: one for each rung that was reached and
        not recorded as judged. The last one for a trial may be to pause or stop it."""
        return tuple(rules.judged(self.sweep, trials))

    def end(self, trials: Sequence[Trial]) -> End | None:
        """Return the end of the search; None while there is something to do or to wait for."""
        if failures := self._failures(trials):
            first = failures[0]
            return End(
                "failed",
                f"{len(failures)} trials failed one after the other, {first.number} first: {_cause(first)}",
            )
        if _running(trials) or self._more(trials) or rules.promoted(self.sweep, trials) or self._last(trials):
            return None
        if len(trials) < self.sweep.trials:
            return End("done", f"all {len(trials)} combinations were tried")
        return End("done", f"all {len(trials)} trials ended")

    def notes(self, trials: Sequence[Trial]) -> tuple[str, ...]:
        """Return notes for the user, such as a metric that was never reported."""
        metric, least = self.sweep.metric, self.sweep.stop.min
        if any(trial.curve for trial in trials):
            return ()
        hint = f"the program has to call causeway.report(step, {metric}=…)"
        ended = next((trial for trial in trials if trial.state == "done"), None)
        if ended:
            return (f"no trial logged {metric}, trial {ended.number} ended without it: {hint}",)
        late = next((trial for trial in trials if trial.seen >= least), None)
        if late:
            return (
                f"no trial logged {metric}, trial {late.number} is at step {late.seen} without it: {hint}",
            )
        return ()

    def best(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the best trial that is done; if none is, the best of those that got furthest. None before
        the first value."""
        return next(iter(ranking.ranked(self.sweep, trials)), None)

    def value(self, trial: Trial) -> float | None:
        """The value by which trials are compared: the best that it reported, with ``wilcoxon`` the mean."""
        return ranking.value(self.sweep, trial)

    def importance(self, trials: Sequence[Trial]) -> Mapping[str, float]:
        """Return parameter → its share of the differences between trials, the largest first; empty if there
        are too few trials. Raises CausewayError without Optuna."""
        return studies.importance(self.sweep, trials)

    def counts(self, trials: Sequence[Trial]) -> Mapping[State, int]:
        """Return state → number of trials, for all states."""
        found = Counter(trial.state for trial in trials)
        return {state: found[state] for state in get_args(State)}

    def _more(self, trials: Sequence[Trial]) -> bool:
        """Whether there is a trial left to start."""
        if len(trials) >= self.sweep.trials:
            return False
        count = size(self.sweep.parameters)
        return count is None or len(samplers.tried(self.sweep, trials)) < count

    def _last(self, trials: Sequence[Trial]) -> Resume | None:
        """The last trial, since at least one has to be trained to its end."""
        if _running(trials) or any(trial.state == "done" and trial.known for trial in trials):
            return None
        return rules.left_over(self.sweep, trials)

    def _failures(self, trials: Sequence[Trial]) -> Sequence[Trial]:
        """Return the last trials, by number, if they are failures and as many as ``fail_limit``. A running
        trial is ignored until its first report, which proves that it works."""
        streak: list[Trial] = []
        for trial in sorted(trials, key=lambda each: -each.number):
            if trial.number <= self.since or (trial.curve and trial.state != "failed"):
                break
            if trial.state in ("failed", "done"):
                streak.append(trial)
        return streak[::-1] if len(streak) >= self.sweep.fail_limit else ()


def applied(trials: Sequence[Trial], move: Start | Resume | Decision) -> tuple[Trial, ...]:
    """Return the trials as they are once ``move`` is recorded."""
    if isinstance(move, Start):
        return (*trials, Trial(move.number, move.parameters))
    changes: dict[str, object] = {"judged": move.step}
    if isinstance(move, Resume):
        changes["state"] = "running"
    elif move.action != "pass":
        changes["state"] = "paused" if move.action == "pause" else "stopped"
    return tuple(replace(each, **changes) if each.number == move.number else each for each in trials)  # type: ignore[arg-type]


def _running(trials: Sequence[Trial]) -> int:
    return sum(trial.state == "running" for trial in trials)


def _cause(trial: Trial) -> str:
    return trial.cause or ("it failed" if trial.state == "failed" else "it ended without the metric")
