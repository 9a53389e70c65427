"""The groups as a supply of machines: how many are starting, how many can be started, and in which zone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from infra.autoscaler.config import Config
from infra.autoscaler.limits import Ledger, standing
from infra.autoscaler.observed.cluster_state import ClusterState, GroupView
from infra.autoscaler.placement.node_matrix import Flags, Ints
from infra.autoscaler.placement.zones import Zones

_UNKNOWN = 1e6
"""USD per hour for comparison if the price is unknown: more than any price."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A machine that is starting: a row of a fresh plan may be matched with it."""

    zone: str
    tier: int
    name: str


class Capacity:
    """The capacity that a plan takes from the groups."""

    def __init__(
        self,
        view: ClusterState,
        config: Config,
        zones: Sequence[Zones],
        units: Sequence[Sequence[Unit]],
    ) -> None:
        """``units``: the starting machines by group that are not in the matrix."""
        self.groups: Sequence[GroupView] = tuple(view.groups.values())
        self.zones = zones
        self.units = units
        # Starting machines are paid for, whether or not the plan uses them.
        start: Mapping[str, int] = {each.group.name: standing(each) for each in self.groups}
        self.ledger = Ledger(self.groups, start, view.machines, config)
        prices = np.array([each.template.price for each in self.groups], np.float64)
        self.price = np.where(prices > 0, prices, _UNKNOWN)
        self._budget = config.max_hourly_cost
        self._known = prices > 0
        self.several: Flags = np.array([not each.single for each in zones], np.bool_)
        self._usable: Flags = np.array([usable(each) for each in self.groups], np.bool_)
        self._limited = [
            place
            for place, each in enumerate(self.groups)
            if self._usable[place] and config.quotas.get(each.group.region)
        ]
        self._taken: Ints = np.zeros(len(self.groups), np.int64)
        self._ahead: Ints = np.array([len(each) for each in units], np.int64)
        self._left: Ints = np.array(
            [
                (min(each.group.max, each.state.max) if each.state else 0) - start[each.group.name]
                for each in self.groups
            ],
            np.int64,
        )

    def room(self, group: int) -> int:
        """How many units a group can still get: those that start in any case, or what the limits allow."""
        ahead = max(0, int(self._ahead[group] - self._taken[group]))
        return ahead + (self.ledger.room(self.groups[group].group.name) if self._usable[group] else 0)

    def open(self) -> Flags:
        """Groups that can get at least one unit."""
        found = self._usable & (self._left + self._ahead > self._taken)
        if self._budget is not None:
            found &= self._known & (self.price <= self._budget - self.ledger.cost + 1e-9)
        for group in self._limited:
            if found[group]:
                found[group] = self.ledger.room(self.groups[group].group.name) > 0
        return found | (self._ahead > self._taken)

    def take(self, group: int) -> str:
        """Take one machine; returns its expected zone."""
        self._give(group, 1)
        return self.zones[group].take()

    def back(self, group: int, zone: str) -> None:
        """Return the last one."""
        self._give(group, -1)
        self.zones[group].back(zone)

    def join(self, group: int, zone: str) -> None:
        """Add a machine that was taken from another group."""
        self._give(group, 1)
        self.zones[group].join(zone)

    def _give(self, group: int, units: int) -> None:
        before = max(0, int(self._taken[group] - self._ahead[group]))
        self._taken[group] += units
        new = max(0, int(self._taken[group] - self._ahead[group])) - before
        if new:
            self.ledger.take(self.groups[group].group.name, new)


def usable(view: GroupView) -> bool:
    """Whether a group may be asked for machines."""
    state = view.state
    return (
        state is not None and not state.deleting and "Launch" not in state.suspended and view.backoff is None
    )
