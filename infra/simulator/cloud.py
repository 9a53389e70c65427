"""A model of AWS: Auto Scaling groups, their machines, capacity, and scaling activities.

A group below its desired size launches machines after a moment, balanced over zones, and in the next zone if
one has no capacity. What no zone has fails in an activity with AWS's own message, and is retried with
increasing delays. A group above its desired size terminates nothing, as all instances are protected from
scale-in. A machine is billed per second from launch to termination.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from infra.autoscaler.config import Config, Group, PricedType
from infra.autoscaler.observed.snapshot import GPU, Activity, GroupState, Instance
from infra.simulator import activity_messages
from infra.simulator.conditions import Capacity, Conditions, Fate
from infra.simulator.event_queue import Calendar

KEPT = 30
"""The number of activities that a group shows."""

Why = Literal["asked", "interrupted", "timeout"]
"""Why a machine is terminated: by a policy, by AWS, or because its hook timed out."""


class RefusedError(Exception):
    """AWS refuses a call."""


@dataclass(slots=True, eq=False)
class Machine:
    """An EC2 instance of a group."""

    seen: Instance
    group: str
    kind: PricedType
    price: float
    """USD per hour."""
    market: str
    """The vCPU quota that applies to it."""
    boots: float | None
    """Seconds from its launch until its node is ready; None: never."""
    why: Why = "asked"
    ended: float | None = None

    @property
    def node(self) -> str:
        """The name of its node, whether or not it exists."""
        return f"ip-{self.seen.id[2:]}"


@dataclass(slots=True, eq=False)
class _Group:
    config: Group
    desired: int
    changed: float = 0.0
    was: int = 0
    machines: dict[str, Machine] = field(default_factory=dict)
    activities: deque[Activity] = field(default_factory=lambda: deque(maxlen=KEPT))
    started: int = 0
    told: int = 0
    failures: int = 0
    """Consecutive failures."""
    plan: int = 0
    """The number of the current reconciliation; older ones are void."""
    state: GroupState | None = None

    @property
    def staying(self) -> list[Machine]:
        return [each for each in self.machines.values() if not each.seen.leaving]

    @property
    def present(self) -> int:
        return sum(each.seen.weight for each in self.machines.values() if not each.seen.leaving)


class Cloud:
    """All groups of a configuration. `joined` and `ended` are called when machines run and end."""

    def __init__(
        self,
        config: Config,
        conditions: Conditions,
        calendar: Calendar,
        *,
        joined: Callable[[Machine], None],
        ended: Callable[[Machine, Why], None],
    ) -> None:
        self._config = config
        self._conditions = conditions
        self._calendar = calendar
        self._joined = joined
        self._ended = ended
        self._groups = {group.name: _Group(group, group.min) for group in config.groups}
        self._machines: dict[str, Machine] = {}
        self._count: Counter[tuple[str, str, bool]] = Counter()
        """Running machines by zone, type and market."""
        self._vcpus: Counter[tuple[str, str]] = Counter()
        """By region and quota."""
        self._zones: dict[str, set[str]] = {}
        for group in config.groups:
            self._zones.setdefault(group.region, set()).update(group.zones)
            self._reconcile_after(self._groups[group.name], conditions.reaction)
        for row in conditions.capacity:
            calendar.at(calendar.start + row.begin, lambda row=row: self._reclaim(row))  # type: ignore[misc]
        for outage in conditions.outages:
            for time in (outage.begin, outage.end):
                calendar.at(calendar.start + time, self._changed)
        self.version = 0
        """Incremented with every change that may affect a decision."""
        self.cost = 0.0
        """USD of terminated machines; `bill` adds the running ones."""
        self.gpu_seconds = 0.0
        """The same in GPU-seconds."""
        self.launches = 0
        self.failed = 0

    # State for readers

    def states(self) -> dict[str, GroupState]:
        """The groups, without those in regions whose API does not answer."""
        dark = self.dark()
        return {
            name: self._state(group)
            for name, group in self._groups.items()
            if group.config.region not in dark
        }

    def dark(self) -> frozenset[str]:
        """Regions whose API currently does not answer."""
        now = self._calendar.elapsed
        return frozenset(row.region for row in self._conditions.outages if row.begin <= now < row.end)

    def machine(self, instance: str) -> Machine | None:
        """A machine that is not terminated, by its id."""
        return self._machines.get(instance)

    def running(self) -> int:
        """The number of billed machines."""
        return len(self._machines)

    def bill(self) -> tuple[float, float]:
        """USD and GPU-hours so far."""
        now = self._calendar.now
        cost, gpus = self.cost, self.gpu_seconds
        for each in self._machines.values():
            seconds = now - (each.seen.launched or now)
            cost += seconds / 3600 * each.price
            gpus += seconds * self._gpus(each)
        return cost, gpus / 3600

    # Calls for writers

    def set_desired(self, name: str, desired: int) -> None:
        """SetDesiredCapacity without a cool-down."""
        group = self._writable(name)
        if not group.config.min <= desired <= group.config.max:
            raise RefusedError(
                f"{name}: desired capacity {desired} is not from {group.config.min} to {group.config.max}"
            )
        if desired != group.desired:
            group.was, group.desired, group.changed = group.desired, desired, self._calendar.now
            group.failures = 0
            self._touch(group)
        self._reconcile_after(group, self._conditions.reaction)

    def terminate(self, instance: str, *, decrement: bool) -> None:
        """TerminateInstanceInAutoScalingGroup."""
        machine = self._machines.get(instance)
        if machine is None or machine.seen.leaving:
            raise RefusedError(f"{instance} is not in a group any more")
        group = self._writable(machine.group)
        if decrement:
            if group.desired - machine.seen.weight < group.config.min:
                raise RefusedError(
                    "Terminating instance without replacement will violate group's min size constraint."
                )
            group.was, group.desired = group.desired, group.desired - machine.seen.weight
            group.changed = self._calendar.now
        self._leave(machine)
        self._reconcile_after(group, self._conditions.reaction)

    def release(self, instance: str) -> None:
        """CompleteLifecycleAction: the hook no longer delays the machine's termination."""
        machine = self._machines.get(instance)
        if machine is None or machine.seen.lifecycle != "Terminating:Wait":
            raise RefusedError(f"{instance} waits for nothing")
        self._writable(machine.group)
        self._end(machine)

    # Events

    def _state(self, group: _Group) -> GroupState:
        if group.state is None:
            group.state = GroupState(
                name=group.config.name,
                region=group.config.region,
                desired=group.desired,
                min=group.config.min,
                max=group.config.max,
                instances=tuple(each.seen for each in group.machines.values()),
                activities=tuple(group.activities),
                suspended=("AZRebalance",),
                protects=True,
                hooks=(group.config.hook,),
            )
        return group.state

    def _writable(self, name: str) -> _Group:
        group = self._groups[name]
        if group.config.region in self.dark():
            raise RefusedError(f"{group.config.region}: the service does not answer")
        return group

    def _touch(self, group: _Group) -> None:
        group.state = None
        self._changed()

    def _changed(self) -> None:
        self.version += 1

    def _reconcile_after(self, group: _Group, seconds: float) -> None:
        group.plan += 1
        number = group.plan

        def due() -> None:
            if group.plan == number:
                self._reconcile(group)

        self._calendar.after(seconds, due)

    def _reconcile(self, group: _Group) -> None:
        missing = group.desired - group.present
        if missing > 0:
            problem = self._launch(group, missing)
            if problem is None:
                group.failures = 0
            else:
                wait = min(self._conditions.retry * 2**group.failures, self._conditions.retry_most)
                group.failures += 1
                self._reconcile_after(group, wait)

    def _launch(self, group: _Group, units: int) -> str | None:
        """Launch as far as there is capacity; returns the last error if it was not enough."""
        now, began = self._calendar.now, group.present
        refusals: dict[str, tuple[str, str]] = {}
        even = Counter(dict.fromkeys(group.config.zones, 0))
        even.update(each.seen.zone for each in group.staying)
        started: list[Machine] = []
        while units > 0:
            spot = self._spot(group)
            machine = None
            for kind in group.config.types:
                if kind.weight > units and kind is not group.config.types[-1] and kind.weight > 1:
                    continue
                problem = self._quota(group.config.region, kind, spot)
                if problem is not None:
                    refusals[f"{kind.name}/quota"] = ("", problem)
                    continue
                for zone in sorted(even, key=lambda zone: (even[zone], zone)):
                    if f"{kind.name}/{zone}" in refusals:
                        continue
                    if self._room(group.config.region, zone, kind.name, spot) > 0:
                        machine = self._start(group, kind, zone, spot)
                        break
                    others = tuple(
                        other
                        for other in group.config.zones
                        if other != zone and self._room(group.config.region, other, kind.name, spot) > 0
                    )
                    words = (
                        activity_messages.spot_capacity()
                        if spot
                        else activity_messages.capacity(kind.name, zone, others)
                    )
                    refusals[f"{kind.name}/{zone}"] = ("" if spot else zone, words)
                if machine is not None:
                    break
            if machine is None:
                break
            even[machine.seen.zone] += 1
            units -= machine.seen.weight
            started.append(machine)
        cause = activity_messages.launch_cause(group.changed, now, group.was, group.desired, began)
        if started:
            first = started[0].seen.id
            self._tell(group, "Successful", f"Launching a new EC2 instance: {first}", cause, "")
        if units <= 0:
            return None
        for zone, words in refusals.values():
            self.failed += 1
            text = f"Launching a new EC2 instance.  Status Reason: {words}"
            self._tell(group, "Failed", text, cause, words, zone)
        return next(iter(refusals.values()), ("", "nothing fits"))[1]

    def _tell(
        self, group: _Group, status: str, description: str, cause: str, message: str, zone: str = ""
    ) -> None:
        group.told += 1
        now = self._calendar.now
        group.activities.appendleft(
            Activity(
                id=f"{group.config.name}-{group.told}",
                group=group.config.name,
                start=now,
                status=status,
                cause=cause,
                description=description,
                message=message,
                zone=zone,
                end=now,
            )
        )
        self._touch(group)

    def _spot(self, group: _Group) -> bool:
        """Whether the next unit is a Spot Instance."""
        config = group.config
        on_demand = sum(each.seen.weight for each in group.staying if not each.seen.spot)
        if on_demand < config.on_demand_base:
            return False
        spot = sum(each.seen.weight for each in group.staying if each.seen.spot)
        above = on_demand - config.on_demand_base
        return above * 100 >= config.on_demand_percent * (above + spot + 1)

    def _quota(self, region: str, kind: PricedType, spot: bool) -> str | None:
        name = kind.quota_spot if spot else kind.quota_on_demand
        limit = self._config.quotas.get(region, {}).get(name)
        if limit is None or self._vcpus[region, name] + kind.vcpus <= limit:
            return None
        return activity_messages.spot_quota() if spot else activity_messages.quota(limit)

    def _room(self, region: str, zone: str, kind: str, spot: bool) -> float:
        now, room = self._calendar.elapsed, math.inf
        for row in self._conditions.capacity:
            if self._bounds(row, region, zone, kind, spot) and row.begin <= now < row.end:
                room = min(room, row.machines - self._within(row, kind, spot))
        return room

    @staticmethod
    def _bounds(row: Capacity, region: str, zone: str, kind: str, spot: bool) -> bool:
        return (
            row.region == region
            and (not row.zones or zone in row.zones)
            and row.type in ("", kind)
            and row.spot in (None, spot)
        )

    def _within(self, row: Capacity, kind: str, spot: bool) -> int:
        zones = row.zones or tuple(self._zones.get(row.region, ()))
        return sum(self._count[zone, kind, spot] for zone in zones)

    def _start(self, group: _Group, kind: PricedType, zone: str, spot: bool) -> Machine:
        now = self._calendar.now
        fate = Fate(self._conditions.seed, group.config.name, group.started)
        group.started += 1
        self.launches += 1
        name = f"i-{group.config.name}-{group.started}"
        price = (kind.spot if spot else kind.on_demand) or 0.0
        machine = Machine(
            seen=Instance(
                id=name,
                type=kind.name,
                zone=zone,
                lifecycle="Pending",
                weight=kind.weight,
                protected=True,
                launched=now,
                spot=spot,
                state="pending",
            ),
            group=group.config.name,
            kind=kind,
            price=price,
            market=kind.quota_spot if spot else kind.quota_on_demand,
            boots=fate.boot(self._conditions),
        )
        group.machines[name] = self._machines[name] = machine
        self._count[zone, kind.name, spot] += 1
        self._vcpus[group.config.region, machine.market] += kind.vcpus
        self._touch(group)
        self._calendar.after(self._conditions.running, lambda: self._run(machine))
        interruption = fate.interruption(self._conditions) if spot else None
        if interruption is not None:
            self._calendar.after(interruption, lambda: self._interrupt(machine))
        return machine

    def _run(self, machine: Machine) -> None:
        if not machine.seen.leaving and machine.ended is None:
            machine.seen = replace(machine.seen, lifecycle="InService", state="running")
            self._groups[machine.group].state = None  # without a new version: no decision depends on it
            self._joined(machine)

    def _interrupt(self, machine: Machine) -> None:
        """Send the notice; the machine is terminated two minutes later."""
        if machine.ended is not None or machine.seen.interrupted is not None:
            return
        end = self._calendar.now + self._conditions.notice
        machine.seen = replace(machine.seen, interrupted=end)
        self._touch(self._groups[machine.group])

        def over() -> None:
            if machine.ended is None:
                machine.why = "interrupted"
                self._end(machine)
                self._reconcile_after(self._groups[machine.group], self._conditions.reaction)

        self._calendar.at(end, over)

    def _reclaim(self, row: Capacity) -> None:
        """Interrupt Spot Instances for which there is no more capacity."""
        found = [
            each
            for each in self._machines.values()
            if each.seen.spot
            and each.seen.interrupted is None
            and self._bounds(
                row, self._groups[each.group].config.region, each.seen.zone, each.kind.name, spot=True
            )
        ]
        kinds = Counter(each.kind.name for each in found)
        for kind, count in kinds.items():
            excess = count - row.machines
            for each in [each for each in found if each.kind.name == kind][: max(excess, 0)]:
                self._interrupt(each)

    def _leave(self, machine: Machine) -> None:
        machine.seen = replace(machine.seen, lifecycle="Terminating:Wait")
        self._touch(self._groups[machine.group])

        def timeout() -> None:
            if machine.ended is None:
                machine.why = "timeout"
                self._end(machine)

        self._calendar.after(self._conditions.heartbeat, timeout)

    def _end(self, machine: Machine) -> None:
        now = self._calendar.now
        group = self._groups[machine.group]
        machine.ended = now
        seconds = max(now - (machine.seen.launched or now), 60)  # at least a minute is billed
        self.cost += seconds / 3600 * machine.price
        self.gpu_seconds += seconds * self._gpus(machine)
        del self._machines[machine.seen.id]
        self._count[machine.seen.zone, machine.kind.name, machine.seen.spot] -= 1
        self._vcpus[group.config.region, machine.market] -= machine.kind.vcpus
        machine.seen = replace(machine.seen, lifecycle="Terminating:Proceed", state="shutting-down")
        self._touch(group)
        self._ended(machine, machine.why)

        def forget() -> None:
            del group.machines[machine.seen.id]
            self._touch(group)

        self._calendar.after(self._conditions.ending, forget)

    def _gpus(self, machine: Machine) -> int:
        return self._groups[machine.group].config.allocatable.get(GPU, 0) * machine.kind.weight
