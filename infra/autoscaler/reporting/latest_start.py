"""Computes the latest start of workloads in a queue, from their declared run times.

A simulation of quota, as Kueue counts it. It assumes:

- Every workload runs for exactly its declared time. If one ends earlier, others start earlier (always with
one flavor; nearly always if workloads may choose among several).
- Nothing with higher priority arrives, nothing is reclaimed (preemption, a queue's share), and no run fails
and restarts.
- Workloads start in the given order. Nothing overtakes on the same flavor, unless it fits immediately. Kueue
also lets smaller workloads overtake later on, which may delay others for as long as they run.
- Quota is all that a run needs. Whether it fits on machines, and how long these take to start, is ignored.

So each workload queues on each flavor that it may use, and uses the one on which it starts first. Once a
start on a flavor is unknown, because a workload that holds it declares no run time, all later ones are.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Amounts: TypeAlias = tuple[tuple[str, int], ...]
"""(resource, amount), sorted; without zeros."""

_STEPS: Final = 24
"""Maximum steps of a forecast."""

Unknown: TypeAlias = Literal["", "too-large", "no-time"]


@dataclass(frozen=True, slots=True)
class Part:
    """Equal pods of a workload, all of which get one flavor."""

    flavors: tuple[str, ...]
    """Possible flavors, in the order in which they are tried."""
    amounts: Amounts
    """The total of all of its pods."""


@dataclass(frozen=True, slots=True)
class Work:
    """A waiting workload."""

    parts: tuple[Part, ...]
    seconds: float | None
    """Its run time; None if not declared."""


@dataclass(frozen=True, slots=True)
class Held:
    """Quota in use."""

    flavor: str
    amounts: Amounts
    until: float | None
    """When it is released; None if unknown."""


@dataclass(frozen=True, slots=True)
class Start:
    """The latest start of a workload."""

    at: float | None
    why: Unknown = ""
    """Why it is unknown: no possible flavor has enough quota, or a workload ahead declares no run time."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The free quota of a flavor for new work, after all waiting workloads."""

    free: Mapping[str, int]
    """Free now, less what starts immediately."""
    later: tuple[tuple[float, Mapping[str, int]], ...]
    """(time, free amounts), ascending. Empty if unknown."""


def simulate(
    capacity: Mapping[str, Mapping[str, int]],
    held: Iterable[Held],
    opens: Mapping[str, float],
    work: Sequence[Work],
    now: float,
) -> tuple[tuple[Start, ...], dict[str, Forecast]]:
    """The start of each workload, in the given order, and the remaining quota of each flavor.

    ``capacity``: flavor → resource → amount. Resources that a flavor lacks are not counted on it. ``opens``:
    flavors that are closed until that time. Times in seconds since the epoch.
    """
    lines = {name: _Line(dict(each), max(now, opens.get(name, now))) for name, each in capacity.items()}
    for each in held:
        if each.flavor in lines:
            lines[each.flavor].take(each.amounts, None if each.until is None else max(now, each.until))
    starts: list[Start | None] = [_at_once(lines, each, now) for each in work]
    free = {
        name: {what: max(0, amount) for what, amount in each.free.items()} for name, each in lines.items()
    }
    found = [
        _in_line(lines, each) if start is None else start for each, start in zip(work, starts, strict=True)
    ]
    return tuple(found), {name: Forecast(free[name], line.later()) for name, line in lines.items()}


def _at_once(lines: Mapping[str, _Line], work: Work, now: float) -> Start | None:
    """Start a workload now if everything that it needs is free."""
    chosen: dict[str, Amounts] = {}
    for part in work.parts:
        for name in part.flavors:
            line = lines.get(name)
            if line is None or line.at > now:
                continue
            together = _sum(chosen.get(name), part.amounts)
            if line.fits(together):
                chosen[name] = together
                break
        else:
            return None
    for name, amounts in chosen.items():
        lines[name].take(amounts, None if work.seconds is None else now + work.seconds)
    return Start(now)


def _in_line(lines: Mapping[str, _Line], work: Work) -> Start:
    """Append a workload to the queues of the flavors on which it starts first."""
    chosen: dict[str, Amounts] = {}
    fitting: set[str] = set()
    at = 0.0
    for part in work.parts:
        possible = [
            (name, lines[name], together)
            for name in part.flavors
            if name in lines and lines[name].holds(together := _sum(chosen.get(name), part.amounts))
        ]
        if not possible:
            return Start(None, "too-large")
        fitting.update(name for name, _, _ in possible)
        # If times are equal, the first flavor.
        when, place = min(
            ((line.first(together), place) for place, (_, line, together) in enumerate(possible)),
            key=lambda each: (each[0] is None, each[0] or 0.0, each[1]),
        )
        if when is None:
            # It is unknown when this takes its quota, so later starts are unknown too.
            for name in fitting:
                lines[name].known = False
            return Start(None, "no-time")
        name, _, together = possible[place]
        chosen[name], at = together, max(at, when)
    for name, amounts in chosen.items():
        lines[name].move(at)
        lines[name].take(amounts, None if work.seconds is None else at + work.seconds)
    return Start(at)


def _sum(one: Amounts | None, other: Amounts) -> Amounts:
    if one is None:
        return other
    found = dict(one)
    for name, amount in other:
        found[name] = found.get(name, 0) + amount
    return tuple(sorted(found.items()))


def _within(amounts: Amounts, limits: Mapping[str, int]) -> bool:
    """Whether the amounts are within the limits; resources without a limit do not count."""
    return all(amount <= limits.get(name, amount) for name, amount in amounts)


@dataclass(slots=True)
class _Line:
    """A flavor, from the time at which the last workload in its queue starts."""

    capacity: dict[str, int]
    at: float
    known: bool = True
    """Whether anything is known about later times."""
    free: dict[str, int] = field(init=False)
    _back: list[tuple[float, Amounts]] = field(default_factory=list)
    """When and how much is released, in order."""
    _seen: dict[Amounts, float | None] = field(default_factory=dict)
    """Cached results of `first` since the last `take`."""

    def __post_init__(self) -> None:
        self.free = dict(self.capacity)

    def holds(self, amounts: Amounts) -> bool:
        """Whether the total is sufficient."""
        return _within(amounts, self.capacity)

    def fits(self, amounts: Amounts) -> bool:
        """Whether this much is free."""
        return _within(amounts, self.free)

    def take(self, amounts: Amounts, until: float | None) -> None:
        """Use some of it, until a time or forever."""
        own = tuple((name, amount) for name, amount in amounts if name in self.free)
        for name, amount in own:
            self.free[name] -= amount
        if until is not None:
            insort(self._back, (until, own))
        self._seen.clear()

    def first(self, wanted: Amounts) -> float | None:
        """From when on this much is free; None if unknown."""
        if not self.known:
            return None
        if wanted not in self._seen:
            self._seen[wanted] = self._first(wanted)
        return self._seen[wanted]

    def _first(self, wanted: Amounts) -> float | None:
        lacking = {
            name: short
            for name, amount in wanted
            if name in self.free and (short := amount - self.free[name]) > 0
        }
        if not lacking:
            return self.at
        for when, amounts in self._back:
            for name, amount in amounts:
                if name in lacking:
                    lacking[name] -= amount
                    if lacking[name] <= 0:
                        del lacking[name]
            if not lacking:
                return max(self.at, when)
        return None

    def move(self, at: float) -> None:
        """Advance to a time, releasing what is due."""
        self.at = max(self.at, at)
        done = 0
        for when, amounts in self._back:
            if when > self.at:
                break
            done += 1
            for name, amount in amounts:
                self.free[name] += amount
        del self._back[:done]
        self._seen.clear()

    def later(self) -> tuple[tuple[float, Mapping[str, int]], ...]:
        """What is free from when on, without further work."""
        if not self.known:
            return ()
        self.move(self.at)
        free = dict(self.free)
        steps = [(self.at, dict(free))]
        for when, amounts in self._back:
            for name, amount in amounts:
                free[name] += amount
            if when == steps[-1][0]:
                steps.pop()
            steps.append((when, dict(free)))
        # The last steps say when everything is free; leaving out others only understates what is free.
        if len(steps) > _STEPS:
            every = -(-len(steps) // _STEPS)
            steps = steps[::-1][::every][::-1]
        return tuple(steps)
