"""Usage of quota: one cohort, whose queues borrow from each other without limits; and recent usage by
namespace, which orders a queue if the spec sets ``usage_half_life``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from infra.simulator.kueue.rules import Rules
from infra.simulator.kueue.workload import Workload

Key: TypeAlias = tuple[str, str]
"""A flavor and one of its resources."""
Use: TypeAlias = Mapping[Key, int]


class Ledger:
    """Usage by queue, and what is free in total."""

    def __init__(self, rules: Rules) -> None:
        self._weights = {name: each.weight for name, each in rules.queues.items()}
        self._nominal: dict[str, dict[Key, int]] = {
            name: {
                (flavor, what): amount for flavor, row in each.nominal.items() for what, amount in row.items()
            }
            for name, each in rules.queues.items()
        }
        self.total: dict[Key, int] = {
            (flavor, what): amount for flavor, row in rules.total.items() for what, amount in row.items()
        }
        self.free = dict(self.total)
        self._used: dict[str, dict[Key, int]] = {name: {} for name in rules.queues}
        self._lendable: dict[str, int] = {}
        for (_, what), amount in self.total.items():
            self._lendable[what] = self._lendable.get(what, 0) + amount

    def add(self, queue: str, use: Use, times: int = 1) -> None:
        """Add usage; ``times=-1`` removes it."""
        used = self._used[queue]
        for key, amount in use.items():
            used[key] = used.get(key, 0) + times * amount
            self.free[key] -= times * amount

    @contextmanager
    def without(self, those: Iterable[Workload]) -> Iterator[None]:
        """Without the usage of these workloads, inside the block."""
        gone = [(each.queue, each.use) for each in those]
        for queue, use in gone:
            self.add(queue, use, -1)
        yield
        for queue, use in gone:
            self.add(queue, use)

    def fits(self, use: Use) -> bool:
        """Whether this much is free in the cohort."""
        return all(amount <= self.free[key] for key, amount in use.items())

    def borrowed(self, queue: str, more: Use | None = None) -> dict[Key, int]:
        """What a queue uses beyond its own quota, now or with ``more``."""
        used = self._used[queue]
        if more:
            used = dict(used)
            for key, amount in more.items():
                used[key] = used.get(key, 0) + amount
        nominal = self._nominal[queue]
        return {key: over for key, amount in used.items() if (over := amount - nominal.get(key, 0)) > 0}

    def borrows(self, queue: str, keys: Iterable[Key], more: Use | None = None) -> bool:
        """Whether a queue borrows any of these."""
        found = self.borrowed(queue, more)
        return any(key in found for key in keys)

    def share(self, queue: str, more: Use | None = None) -> float:
        """The dominant resource share: the maximum over resources of what is borrowed, divided by the total,
        by weight."""
        sums: dict[str, int] = {}
        for (_, what), amount in self.borrowed(queue, more).items():
            sums[what] = sums.get(what, 0) + amount
        ratios = (amount * 1000 / lend for what, amount in sums.items() if (lend := self._lendable[what]) > 0)
        return max(ratios, default=0.0) / self._weights[queue]


class Usage:
    """A moving average of admitted resources by namespace, with the rendered weights.

    Kueue updates it every five minutes and at each admission; here it is always exact. An admitted workload
    is charged for one such interval immediately, so that the next admission takes it into account.
    """

    def __init__(self, rules: Rules, clock: Callable[[], float]) -> None:
        self._rules = rules
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}
        """Namespace → usage, and its time."""
        self._rate: dict[str, float] = {}
        """Namespace → what is currently admitted."""

    def of(self, namespace: str) -> float:
        """Its current usage."""
        used, at = self._used.get(namespace, (0.0, 0.0))
        new = self._alpha(self._clock() - at)
        return used * (1 - new) + self._rate.get(namespace, 0.0) * new

    def charge(self, workload: Workload) -> None:
        """Charge an admitted workload."""
        worth = self._worth([workload])
        now = self.of(workload.namespace)
        self._used[workload.namespace] = now + worth * self._alpha(self._rules.sampling), self._clock()

    def count(self, admitted: Iterable[Workload]) -> None:
        """Update after a change of admitted workloads."""
        namespaces: dict[str, list[Workload]] = {}
        for each in admitted:
            namespaces.setdefault(each.namespace, []).append(each)
        for name in {*namespaces, *self._rate}:
            self._used[name] = self.of(name), self._clock()
            self._rate[name] = self._worth(namespaces.get(name, ()))

    def _alpha(self, seconds: float) -> float:
        half = self._rules.half_life
        return 1 - 0.5 ** (seconds / half) if half else 0.0

    def _worth(self, those: Iterable[Workload]) -> float:
        return sum(
            self._rules.weights.get(name, 1.0) * (amount / 1000 if name == "cpu" else amount)
            for each in those
            for (_, name), amount in each.use.items()
        )
