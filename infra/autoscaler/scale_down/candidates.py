"""Which idle machines are terminated, and how many at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from infra.autoscaler.config import Config
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed.cluster_state import ClusterState, Machine
from infra.autoscaler.observed.snapshot import Node
from infra.autoscaler.observed.state_builder import present_units
from infra.autoscaler.scale_down.eviction import Budgets, Elsewhere, load, low, stays

_STAYS: Final = (
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "karpenter.sh/do-not-disrupt",
)
"""Annotations that exclude a node from voluntary termination if they are ``true``."""
_TRIES: Final = 50
"""Maximum machines with movable pods that are considered in one loop, the emptiest first."""


class Allowance:
    """How many machines may begin to drain, and may be terminated, in one loop: a share of each group and of
    all, at least one; never below a group's minimum. The rest waits for the next loop."""

    def __init__(self, view: ClusterState, memory: Memory, config: Config) -> None:
        self._view = view
        sizes = Counter(
            machine.group
            for machine in view.machines
            if machine.group is not None and machine.instance is not None and not machine.instance.leaving
        )
        share = config.max_scale_in_percent
        whole = max(1, sum(sizes.values()) * config.max_cluster_scale_in_percent // 100)
        self._begins = {group: max(1, count * share // 100) for group, count in sizes.items()}
        self._ends = dict(self._begins)
        self._all_begins = self._all_ends = whole
        # If types weigh more than one unit, AWS may launch more than was requested; the excess may be
        # terminated too.
        self._units = {
            name: max(group.state.desired, min(present_units(group.state), group.state.max))
            - max(group.state.min, group.group.min)
            for name, group in view.groups.items()
            if group.state is not None
        }
        # Machines that are being drained will reduce their groups' sizes too.
        self._promised = dict(self._units)
        for machine in view.machines:
            drain = memory.drains.get(machine.name)
            there = machine.state == "draining" and machine.instance is not None
            if there and drain is not None and not drain.forced:
                self._promised[drain.group] = self._promised.get(drain.group, 0) - machine.units

    def above_least(self, machine: Machine) -> bool:
        """Whether its group stays at its minimum without it."""
        return machine.group is not None and self._units.get(machine.group, 0) >= machine.units

    def may_end(self, machine: Machine) -> bool:
        """Whether one more may be terminated now."""
        return machine.group is not None and self._all_ends > 0 and self._ends.get(machine.group, 0) > 0

    def end(self, machine: Machine, *, again: bool = False) -> bool:
        """Count a termination; False if no more are allowed in this loop. A machine in a group at its
        minimum is replaced. ``again``: it was counted in an earlier loop, and still exists: a machine
        that AWS does not terminate must not use up the allowance of others."""
        if machine.group is None or not (again or self.may_end(machine)):
            return False
        if not again:
            self._all_ends -= 1
            self._ends[machine.group] -= 1
        if self.above_least(machine):
            self._units[machine.group] -= machine.units
        return True

    def begin(self, machine: Machine) -> bool:
        """Count the begin of a drain; False if no more are allowed in this loop, or its group is at its
        minimum."""
        group = machine.group
        if group is None or self._all_begins <= 0 or self._begins.get(group, 0) <= 0:
            return False
        if self._promised.get(group, 0) < machine.units:
            return False
        self._all_begins -= 1
        self._begins[group] -= 1
        self._promised[group] -= machine.units
        return True

    @property
    def spent(self) -> bool:
        """Whether no further drain may begin."""
        return self._all_begins <= 0


def spare(view: ClusterState, held: frozenset[str], memory: Memory, config: Config) -> dict[str, int]:
    """Pool → how many idle machines it lacks of those to be kept; negative if it has more.

    Machines being drained do not count: one of them is kept if one is lacking.
    """
    missing = dict(config.spare)
    for machine in view.machines:
        if machine.state == "ready" and not machine.pods and machine.group is not None:
            pool = view.groups[machine.group].group.pool
            if machine.name not in held and machine.name not in _booked(memory, view.at):
                missing[pool] = missing.get(pool, 0) - 1
    return missing


def candidates(
    view: ClusterState,
    held: frozenset[str],
    sizes: Mapping[str, int],
    memory: Memory,
    config: Config,
    allowance: Allowance,
    budgets: Budgets,
    now: float,
) -> Iterator[Machine]:
    """Machines whose drain begins now: those of overflow sites before those of the primary site, the longest
    idle first."""
    order = {group.name: number for number, group in enumerate(config.groups)}
    booked = _booked(memory, now)
    idle: list[tuple[int, float, Machine]] = []
    moved: list[tuple[int, int, Machine]] = []
    for machine in view.machines:
        if machine.group is None or machine.name in held or machine.name in booked:
            continue
        if machine.group in sizes or not _open(machine, view, memory, now):
            continue
        sick = machine.node is not None and machine.node.sick
        since = memory.idle.get(machine.name)
        if not machine.pods:
            # The second check, `settle` later, is at the end of the idle time.
            wait = config.settle if sick else max(0, config.idle - config.settle)
            if since is not None and now - since >= wait:
                idle.append((-order[machine.group], since, machine))
        elif not sick and all(_there(machine, budgets, config, now)) and low(machine):
            moved.append((-order[machine.group], load(machine.pods), machine))

    surplus = {pool: -missing for pool, missing in spare(view, held, memory, config).items()}
    idle.sort(key=lambda each: (each[0], each[1], each[2].name))
    for _, _, machine in idle:
        if allowance.spent:
            return
        pool = view.groups[machine.group or ""].group.pool
        sick = machine.state != "ready"
        if (sick or surplus.get(pool, 0) > 0) and allowance.begin(machine):
            surplus[pool] = surplus.get(pool, 0) - (not sick)
            yield machine

    if not moved or allowance.spent:
        return
    moved.sort(key=lambda each: (each[1], each[0], each[2].name))
    elsewhere = Elsewhere(view, without=held)
    for _, _, machine in moved[:_TRIES]:
        if elsewhere.take(machine) and allowance.begin(machine):
            yield machine


def reserved(node: Node) -> bool:
    """Whether a node is to be kept, because it was cordoned by others or has an annotation."""
    return (node.unschedulable and not node.sick) or any(
        node.annotations.get(key) == "true" for key in _STAYS
    )


def _open(machine: Machine, view: ClusterState, memory: Memory, now: float) -> bool:
    """Whether a machine may be terminated voluntarily at all."""
    node, instance = machine.node, machine.instance
    if node is None or instance is None or machine.group is None:
        return False
    state = view.groups[machine.group].state
    return (
        (machine.state == "ready" or (machine.state == "closed" and node.sick))
        and instance.lifecycle == "InService"
        and state is not None
        and not state.deleting
        and "Terminate" not in state.suspended
        and memory.spared.get(machine.name, 0.0) <= now
        and not reserved(node)
    )


def _there(machine: Machine, budgets: Budgets, config: Config, now: float) -> Iterator[bool]:
    """For each of its pods, whether it may be evicted, and has run for a while."""
    for pod in machine.pods:
        yield (
            bool(pod.node)
            and not pod.deleting
            and now - (pod.started if pod.started is not None else pod.created) >= config.idle
            and stays(pod, budgets) is None
            and not budgets.refuse(pod)
        )


def _booked(memory: Memory, now: float) -> frozenset[str]:
    return frozenset(
        name for booking in memory.bookings.values() if booking.until > now for name in booking.machines
    )
