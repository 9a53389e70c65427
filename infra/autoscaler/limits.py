"""How much may still be launched: maximum sizes of groups, vCPU quotas and the budget, in one ledger.

Quotas count vCPUs of running instances, by region and market (EC2 user guide,
``ec2-on-demand-instances.html`` and ``using-spot-limits.html``). AWS chooses the type and market of a unit;
if they are open, the worst case is assumed, so that no plan exceeds a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from infra.autoscaler.config import Config, Group, PricedType
from infra.autoscaler.observed.cluster_state import GroupView, Machine
from infra.autoscaler.observed.node_affinity import REGION, TYPE
from infra.autoscaler.observed.snapshot import Instance
from infra.autoscaler.reasons import Reason
from infra.catalogue import instances, quotas
from infra.catalogue.labels import CAPACITY


class Ledger:
    """The current and planned size of each group, in capacity units."""

    def __init__(
        self,
        groups: Iterable[GroupView],
        units: Mapping[str, int],
        machines: Iterable[Machine],
        config: Config,
    ) -> None:
        """``units``: the initial units of each group, including those that are starting."""
        self._views = {view.group.name: view for view in groups}
        self._quotas = config.quotas
        self._budget = config.max_hourly_cost
        self.units = dict(units)
        self._on_demand: dict[str, int] = {}
        self._there: dict[str, int] = {}
        self._used: Counter[tuple[str, str]] = Counter()
        self._cost = 0.0
        for name, view in self._views.items():
            running = [each for each in (view.state.instances if view.state else ()) if _runs(each)]
            staying = [each for each in running if not each.leaving]
            self._there[name] = sum(each.weight for each in staying)
            self._on_demand[name] = sum(each.weight for each in staying if not each.spot)
            self.units.setdefault(name, 0)
            for each in running:
                for quota, vcpus in _counted(view.group, each):
                    self._used[view.group.region, quota] += vcpus
                self._cost += _price(view, each)
            for quota, vcpus in self._ahead(view.group, self.units[name]).items():
                self._used[view.group.region, quota] += vcpus
            self._cost += max(0, self.units[name] - self._there[name]) * view.template.price
        for machine in machines:
            if machine.group is None and machine.node is not None and machine.node.instance:
                self._count(machine)

    def room(self, name: str) -> int:
        """How many more units the group may get now."""
        return self._room(name)[0]

    def full(self, name: str) -> Reason | None:
        """Why there is no room; None if there is."""
        return self._room(name)[1]

    def take(self, name: str, units: int = 1) -> None:
        """Give a group more units; a negative number returns them."""
        group = self._views[name].group
        before = self._ahead(group, self.units[name]) if self._quotas else {}
        ahead = max(0, self.units[name] - self._there[name])
        self.units[name] += units
        if self._quotas:
            after = self._ahead(group, self.units[name])
            for quota in {*before, *after}:
                self._used[group.region, quota] += after.get(quota, 0) - before.get(quota, 0)
        ahead = max(0, self.units[name] - self._there[name]) - ahead
        self._cost += ahead * self._views[name].template.price

    @property
    def cost(self) -> float:
        """USD per hour of everything running and planned."""
        return self._cost

    def _room(self, name: str) -> tuple[int, Reason | None]:
        """The number of units, and the reason if there are none."""
        view = self._views[name]
        group = view.group
        most = min(group.max, view.state.max) if view.state else group.max
        room = most - self.units[name]
        if room <= 0:
            return 0, Reason("maximum", limit=max(0, most))
        if self._budget is not None:
            price = view.template.price
            if price <= 0:
                return 0, Reason("no-price")
            room = min(room, int((self._budget - self._cost + 1e-9) // price))
            if room <= 0:
                return 0, Reason("budget", requested=price, limit=max(0.0, self._budget - self._cost))
        limits = self._quotas.get(group.region)
        if limits:
            room, why = self._within(group, room, limits)
            if room <= 0:
                return 0, why
        return room, None

    def _within(self, group: Group, room: int, limits: Mapping[str, int]) -> tuple[int, Reason | None]:
        """The most units, up to ``room``, that do not exceed any quota, and the limiting quota."""
        now = self._ahead(group, self.units[group.name])
        why: Reason | None = None

        def over(units: int) -> Reason | None:
            then = self._ahead(group, self.units[group.name] + units)
            for quota, vcpus in then.items():
                limit = limits.get(quota)
                more = vcpus - now.get(quota, 0)
                if limit is not None and more > 0 and self._used[group.region, quota] + more > limit:
                    return Reason("quota", what=quota, region=group.region, limit=limit)
            return None

        low, high = 0, room
        while low < high:
            middle = (low + high + 1) // 2
            found = over(middle)
            if found:
                high, why = middle - 1, found
            else:
                low = middle
        return low, why

    def _ahead(self, group: Group, units: int) -> dict[str, int]:
        """vCPUs by quota of units without an instance, in the worst case."""
        if not self._quotas:
            return {}
        there = self._there[group.name]
        ahead = units - there
        if ahead <= 0:
            return {}
        above = max(0, units - group.on_demand_base)
        base = units - above
        have = self._on_demand[group.name]
        most = min(ahead, max(0, base + -(-above * group.on_demand_percent // 100) - have))
        least = min(ahead, max(0, base + above * group.on_demand_percent // 100 - have))
        found: Counter[str] = Counter()
        for number, quota_of in ((most, _of_on_demand), (ahead - least, _of_spot)):
            worst: dict[str, int] = {}
            for kind in group.types:
                vcpus = -(-kind.vcpus // max(1, kind.weight))
                worst[quota_of(kind)] = max(worst.get(quota_of(kind), 0), vcpus)
            for quota, vcpus in worst.items():
                if number > 0:
                    found[quota] += number * vcpus
        return dict(found)

    def _count(self, machine: Machine) -> None:
        """Cloud machines outside of all groups count against quotas too."""
        kind = instances.find(machine.labels.get(TYPE, ""))
        if kind is None:
            return
        market: quotas.Market = "spot" if machine.labels.get(CAPACITY) == "spot" else "on-demand"
        quota = quotas.quota_for(kind.name, market)
        if quota is not None:
            self._used[machine.labels.get(REGION, ""), quota.name] += kind.vcpus


def standing(view: GroupView) -> int:
    """Units that a group has or has requested: the minimum for its size."""
    desired = view.state.desired if view.state is not None else 0
    return max(view.present + view.coming, desired)


def _runs(instance: Instance) -> bool:
    return not instance.warm and instance.state not in ("terminated", "stopped", "shutting-down")


def _of_on_demand(kind: PricedType) -> str:
    return kind.quota_on_demand


def _of_spot(kind: PricedType) -> str:
    return kind.quota_spot


def _counted(group: Group, instance: Instance) -> Iterable[tuple[str, int]]:
    for kind in group.types:
        if kind.name == instance.type:
            yield (kind.quota_spot if instance.spot else kind.quota_on_demand), kind.vcpus
            return
    found = instances.find(instance.type)
    quota = quotas.quota_for(instance.type, "spot" if instance.spot else "on-demand") if found else None
    if found is not None and quota is not None:
        yield quota.name, found.vcpus


def _price(view: GroupView, instance: Instance) -> float:
    """The price of a running instance; the group's price if its type has none."""
    for kind in view.group.types:
        if kind.name == instance.type:
            price = kind.spot if instance.spot else kind.on_demand
            if price:
                return price
    return view.template.price * instance.weight
