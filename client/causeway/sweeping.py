"""Conducts a search: asks what to do next, has it recorded and done, and waits. It remembers nothing.

What is decided is recorded before it is done, and done again if this ends in between: a trial that is
recorded and has no run is started, one that is recorded as stopped and still runs is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from causeway.errors import CausewayError
from causeway.search.engine import Engine, applied
from causeway.search.fields import plain
from causeway.search.trials import Decision, End, Resume, Start, State, Trial
from causeway.tracking.searches import Row

AFTER: dict[str, State] = {"pausing": "paused", "stopping": "stopped", "resuming": "running"}
"""What is recorded before it is done → what is recorded after it."""
_STARTS = 20
"""The most that are started at a time: servers are not asked for hundreds at once."""


class Bench(Protocol):
    """Where trials run, and where it is recorded what they did."""

    def look(self) -> Engine | None:
        """Reads what is new; the search as it is now, None once a person has stopped it."""

    def trials(self) -> Sequence[Trial]:
        """All trials, by number."""

    def start(self, move: Start) -> None:
        """Records a new trial, then starts it."""

    def resume(self, move: Resume) -> None:
        """Records that a trial goes on, then puts it back."""

    def judge(self, decision: Decision) -> None:
        """Records what was decided of a trial, then does it."""

    def show(self, summary: Callable[[], Mapping[str, Any]], *, last: bool) -> None:
        """Records what is to be shown of the search: now and then, as it takes a while to compute, and at the
        end."""

    def end(self, end: End) -> None:
        """Stops what still runs, then records that the search is over."""


def step(bench: Bench, say: Callable[[str], None]) -> bool:
    """One round; whether the search goes on."""
    engine = bench.look()
    if engine is None:
        return False
    trials: Sequence[Trial] = bench.trials()
    for decision in engine.judge(trials):
        bench.judge(decision)
        trials = applied(trials, decision)
        if decision.action != "pass":
            say(f"trial {decision.number} {_DONE[decision.action]}: {decision.reason}")
    for _ in range(_STARTS):
        move = engine.propose(trials)
        if move is None:
            break
        if isinstance(move, Start):
            bench.start(move)
            say(f"trial {move.number} starts: {shown(move.parameters)}")
        else:
            bench.resume(move)
            say(f"trial {move.number} resumes after step {move.step}")
        trials = applied(trials, move)
    end = engine.end(trials)
    bench.show(lambda: summary(engine, trials), last=end is not None)
    if end is not None:
        bench.end(end)
    return end is None


_DONE = {"pause": "stopped early", "stop": "stopped early"}


def summary(engine: Engine, trials: Sequence[Trial]) -> dict[str, Any]:
    """What is shown of a search by those who do not compute it themselves."""
    best, importance = engine.best(trials), {}
    with suppress(CausewayError):  # without Optuna, which other samplers can do without
        importance = {name: round(share, 4) for name, share in engine.importance(trials).items()}
    return {
        "counts": {state: count for state, count in engine.counts(trials).items() if count},
        "best": None if best is None else {"number": best.number, "value": engine.value(best)},
        "importance": importance,
        "notes": [*engine.notes(trials)],
    }


def shown(parameters: Mapping[str, Any]) -> str:
    """``lr=0.01 layers=3``."""
    return " ".join(f"{name}={plain(value)}" for name, value in parameters.items())


def trial_of(row: Row) -> Trial:
    """A trial for the engine, of its record."""
    state: Any = AFTER.get(row.state, row.state)
    return Trial(
        row.number, row.parameters, tuple(row.reports), state, row.judged, row.has_checkpoint, row.cause,
        row.seen,
    )  # fmt: skip
