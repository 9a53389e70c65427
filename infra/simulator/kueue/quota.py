"""Who uses how much quota: one cohort, whose queues borrow from each other without limits; and what people
have used lately, by which a queue is ordered where the spec sets ``usage_half_life``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from infra.simulator.kueue.rules import Rules
from infra.simulator.kueue.workload import Workload

Key: TypeAlias = tuple[str, str]
"""A flavor and a resource of it."""
Use: TypeAlias = Mapping[Key, int]


class Ledger:
    """Usage by queue, and what is left of all."""

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
        """Count usage; ``times=-1`` takes it back."""
        used = self._used[queue]
        for key, amount in use.items():
            used[key] = used.get(key, 0) + times * amount
            self.free[key] -= times * amount

    @contextmanager
    def without(self, those: Iterable[Workload]) -> Iterator[None]:
        """As if these had released their quota."""
        gone = [(each.queue, each.use) for each in those]
        for queue, use in gone:
            self.add(queue, use, -1)
        yield
        for queue, use in gone:
            self.add(queue, use)

    def fits(self, use: Use) -> bool:
        """Whether that much is free in the cohort."""
        return all(amount <= self.free[key] for key, amount in use.items())

    def borrowed(self, queue: str, more: Use | None = None) -> dict[Key, int]:
        """What a queue uses beyond its own quota, or would with more."""
        used = self._used[queue]
        if more:
            used = dict(used)
            for key, amount in more.items():
                used[key] = used.get(key, 0) + amount
        nominal = self._nominal[queue]
        return {key: over for key, amount in used.items() if (over := amount - nominal.get(key, 0)) > 0}

    def borrows(self, queue: str, keys: Iterable[Key], more: Use | None = None) -> bool:
        """Whether it does of any of these."""
        found = self.borrowed(queue, more)
        return any(key in found for key in keys)

    def share(self, queue: str, more: Use | None = None) -> float:
        """The dominant resource share: what is borrowed of a resource, of all that there is of it, at the
        most, by weight."""
        sums: dict[str, int] = {}
        for (_, what), amount in self.borrowed(queue, more).items():
            sums[what] = sums.get(what, 0) + amount
        ratios = (amount * 1000 / lend for what, amount in sums.items() if (lend := self._lendable[what]) > 0)
        return max(ratios, default=0.0) / self._weights[queue]


class Usage:
    """A moving average by namespace of what is admitted, with the rendered weights.

    Kueue writes it down every five minutes and at each admission; here it is exact at any time. What is
    admitted is charged for one such interval at once, so that the next one knows of it.
    """

    def __init__(self, rules: Rules, clock: Callable[[], float]) -> None:
        self._rules = rules
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}
        """Namespace → usage, and when that was so."""
        self._rate: dict[str, float] = {}
        """Namespace → what is admitted now."""

    def of(self, namespace: str) -> float:
        """Its usage now."""
        used, at = self._used.get(namespace, (0.0, 0.0))
        new = self._alpha(self._clock() - at)
        return used * (1 - new) + self._rate.get(namespace, 0.0) * new

    def charge(self, workload: Workload) -> None:
        """It is admitted."""
        worth = self._worth([workload])
        now = self.of(workload.namespace)
        self._used[workload.namespace] = now + worth * self._alpha(self._rules.sampling), self._clock()

    def count(self, admitted: Iterable[Workload]) -> None:
        """What is admitted has changed."""
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
