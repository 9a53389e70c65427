"""In which zone a group's next machine is launched.

An Auto Scaling group launches into its zone with the fewest instances (user guide,
``auto-scaling-benefits``: "Instance distribution"); of several such zones the first is assumed. If this
forecast was wrong, the next loop sees the actual zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from infra.autoscaler.observed.cluster_state import GroupView


class Zones:
    """A group's machines by zone, and the forecast."""

    def __init__(self, view: GroupView, there: Iterable[tuple[str, int]], known: Sequence[str] = ()) -> None:
        """``there``: zones and units of machines; ``known``: zones of those that are launched next in any
        case."""
        all_zones = view.group.zones or ("",)
        self.zones = tuple(zone for zone in all_zones if zone not in view.closed_zones) or all_zones
        self._all = all_zones
        self._start: Counter[str] = Counter()
        for zone, units in there:
            self._start[zone] += units
        self._known = tuple(zone if zone in all_zones else all_zones[0] for zone in known)
        self._taken = 0
        self._counts = self._start.copy()

    @property
    def single(self) -> bool:
        """Whether there is only one zone."""
        return len(self._all) == 1

    def possible(self) -> frozenset[str]:
        """Zones in which a next machine may be launched."""
        return frozenset((*self._known[self._taken :], *self.zones))

    def ahead(self) -> Iterator[str]:
        """Yield the next zones, without end."""
        yield from self._known[self._taken :]
        counts = self._counts.copy()
        for zone in self._known[self._taken :]:
            counts[zone] += 1
        while True:
            zone = min(self.zones, key=lambda each: counts[each])
            counts[zone] += 1
            yield zone

    def others(self, wanted: frozenset[str], machines: int = 1) -> float:
        """How many are launched in other zones before this many in these, or all that can; `inf` if none
        can."""
        if self.possible() <= wanted:
            return 0
        right, wrong, since = 0, 0, 0
        for zone in self.ahead():
            if zone in wanted:
                right, since = right + 1, 0
                if right == machines:
                    break
            else:
                wrong, since = wrong + 1, since + 1
                if since > 2 * len(self.zones) + 64:
                    return wrong - since if right else inf
        return wrong

    def take(self) -> str:
        """Take one more machine; returns its zone."""
        if self.single:
            self._taken += 1
            return self._all[0]
        if self._taken < len(self._known):
            zone = self._known[self._taken]
        else:
            zone = min(self.zones, key=lambda each: self._counts[each])
        self._taken += 1
        self._counts[zone] += 1
        return zone

    def back(self, zone: str) -> None:
        """Return the last one."""
        self._taken -= 1
        self._counts[zone] -= 1

    def join(self, zone: str) -> None:
        """Add a machine in this zone, whatever the forecast was."""
        self._taken += 1
        self._counts[zone] += 1

    def needed(self, wanted: Counter[str], least: int) -> int:
        """How many machines have to be launched until so many are in these zones, and so many in total."""
        if self.single:
            return max(least, wanted.total())
        missing = +wanted
        number = 0
        counts = self._start.copy()
        while missing or number < least:
            if number < len(self._known):
                zone = self._known[number]
            else:
                zone = min(self.zones, key=lambda each: counts[each])
            counts[zone] += 1
            number += 1
            if missing[zone] > 0:
                missing[zone] -= 1
                missing = +missing
            if number > 10_000 + least:
                break
        return number
