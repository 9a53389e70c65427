"""What people have used lately: the order within a queue, where the spec sets ``usage_half_life``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from infra.simulator.kueue.rules import Rules
from infra.simulator.kueue.workload import Workload


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
