"""Conducts a search: asks what to do next, records it, does it, and waits. It keeps no state.

Decisions are recorded before they are carried out, and carried out again if the process dies in between: a
trial that is recorded and has no run is started, one that is recorded as stopped and is still running is
stopped.
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
"""The state recorded before an action → the state recorded after it."""
_STARTS = 20
"""Maximum number of trials started in one round, so as not to flood servers with requests."""


def pause(environment: Mapping[str, str], default: float) -> float:
    """Return the seconds between two rounds: those of ``CAUSEWAY_SWEEP_EVERY``, else the bench's own."""
    return float(environment.get("CAUSEWAY_SWEEP_EVERY") or default)


class Bench(Protocol):
    """Where trials run, and where their results are recorded."""

    def look(self) -> Engine | None:
        """Read what is new; return the current search, None once a user has stopped it."""

    def trials(self) -> Sequence[Trial]:
        """Return all trials, by number."""

    def start(self, move: Start) -> None:
        """Record a new trial, then start it."""

    def resume(self, move: Resume) -> None:
        """Record that a trial continues, then resume it."""

    def judge(self, decision: Decision) -> None:
        """Record the decision about a trial, then carry it out."""

    def show(self, summary: Callable[[], Mapping[str, Any]], *, last: bool) -> None:
        """Record what is shown of the search. It is slow to compute, so this is called only now and then, and
        at the end."""

    def end(self, end: End) -> None:
        """Stop what is still running, then record that the search is over."""


def step(bench: Bench, say: Callable[[str], None]) -> bool:
    """Do one round; return whether the search continues."""
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
    """Return what is shown of a search by programs that do not compute it themselves."""
    best, importance = engine.best(trials), {}
    with suppress(CausewayError):  # Optuna is not installed; some samplers do not need it
        importance = {name: round(share, 4) for name, share in engine.importance(trials).items()}
    return {
        "counts": {state: count for state, count in engine.counts(trials).items() if count},
        "best": None if best is None else {"number": best.number, "value": engine.value(best)},
        "importance": importance,
        "notes": [*engine.notes(trials)],
    }


def shown(parameters: Mapping[str, Any]) -> str:
    """Format parameters: ``lr=0.01 layers=3``."""
    return " ".join(f"{name}={plain(value)}" for name, value in parameters.items())


def trial_of(row: Row) -> Trial:
    """Convert a record to a trial for the engine."""
    state: Any = AFTER.get(row.state, row.state)
    return Trial(
        row.number, row.parameters, tuple(row.reports), state, row.judged, row.has_checkpoint, row.cause,
        row.seen,
    )  # fmt: skip
