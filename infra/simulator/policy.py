"""The autoscaler in the simulation.

It reads a snapshot, writes to the world, and says when it must run again even if nothing changes:
immediately (now), at a time, or never (infinity). Loops in between are skipped, which is why a week takes
seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from infra.autoscaler import decision as decisions
from infra.autoscaler.config import Config
from infra.autoscaler.decision import Action, Decision
from infra.autoscaler.memory import Memory, dump, load
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.snapshot import DRAIN_TAINT, Snapshot
from infra.simulator.cloud import RefusedError
from infra.simulator.world import World

_SLOW = (
    decisions.SetDesired,
    decisions.TaintNode,
    decisions.Evict,
    decisions.Release,
    decisions.Tell,
)
"""Actions whose effects come later, as events of the world or at a time in the memory: no loop before that
could do more. After other actions the next loop is run."""


class Ours:
    """`infra.autoscaler.decide` with the executor's rules: read again before each write, and save the memory
    first.

    Its memory is serialized to JSON each time, as for the ConfigMap.
    """

    name = "ours"

    def __init__(self, config: Config) -> None:
        self.interval = float(config.interval)
        """Seconds between loops."""
        self.memory = Memory()
        self.saved = dump(self.memory)
        self._config = config

    def decide(self, snapshot: Snapshot, now: float) -> Decision:
        """The decision of one loop."""
        from infra.autoscaler import decide as deciding

        return deciding.decide(snapshot, self.memory, self._config, now)

    def act(self, world: World, action: Action, now: float) -> None:
        """Execute an action. Raises `RefusedError` if AWS or Kubernetes refuses."""
        perform(world, action, now)

    def loop(self, world: World, snapshot: Snapshot, now: float) -> float:
        """Run one loop; returns when to run again if nothing changes."""
        decided = self.decide(snapshot, now)
        self.saved = dump(decided.memory)
        self.memory = load(self.saved)
        # A refused action ends the actions on the same node.
        barred: set[str] = set()
        refused = 0
        for action in decided.actions:
            node = getattr(action, "node", "")
            if node and node in barred:
                continue
            try:
                self.act(world, action, now)
            except RefusedError:
                refused += 1
                barred.add(node)
        if refused or any(not isinstance(action, _SLOW) for action in decided.actions):
            return now
        return self._due(snapshot, now)

    def _due(self, snapshot: Snapshot, now: float) -> float:
        """The next time in the memory at which something is due; limited to a maximum wait."""
        waits = any(not pod.node for pod in snapshot.pods) or any(
            gang.condition == "Accepted" for gang in snapshot.gangs.values()
        )
        latest = now + (60 if waits else 600)
        return min((time for time in _times(self.memory, self._config) if time > now), default=latest)


def perform(world: World, action: Action, now: float) -> None:
    """One action, with the executor's checks before it."""
    match action:
        case decisions.SetDesired(group=group, desired=desired):
            state = world.cloud.states().get(group)
            if state is None:
                raise RefusedError(f"{group} can't be read")
            present = sum(each.weight for each in state.instances if not each.leaving and not each.warm)
            if state.desired == action.was:
                world.set_desired(group, min(max(desired, present, state.min), state.max))
        case decisions.TaintNode(node=node):
            world.taint(node, Taint(DRAIN_TAINT, str(int(now))))
        case decisions.FreeNode(node=node):
            world.untaint(node, DRAIN_TAINT)
        case decisions.Evict(uid=uid):
            world.evict(uid)
        case decisions.Terminate(group=group, instance=instance, node=node, forced=forced):
            if not forced and any(not pod.daemon for pod in world.works_on(node)):
                raise RefusedError(f"{node} holds work")
            smaller = _may_shrink(world, group, instance)
            if not smaller and not forced:
                raise RefusedError(f"{group} is at its least size")
            world.terminate(instance, decrement=smaller)
        case decisions.Release(instance=instance):
            world.release(instance)
        case decisions.RemoveNode(node=node):
            world.delete_node(node)
        case decisions.Answer(gang=gang, condition=condition):
            world.answer(gang, condition)
        case decisions.HoldFlavor(flavor=flavor, held=held):
            world.hold(flavor, on=held)
        case decisions.Tell():
            pass  # pods of traces do not read annotations


def _may_shrink(world: World, group: str, instance: str) -> bool:
    """Whether a group may be reduced by one machine; if not, it is replaced."""
    state = world.cloud.states().get(group)
    machine = world.cloud.machine(instance)
    return state is None or machine is None or state.desired - machine.seen.weight >= state.min


def _times(memory: Memory, config: Config) -> Iterator[float]:
    """The times in the memory at which something is due."""
    groups = {group.name: group for group in config.groups}
    for since in memory.idle.values():
        yield since + config.idle - config.settle
        yield since + config.idle
    yield from (since + config.boot_timeout for since in memory.boots.values())
    yield from (each.until for each in memory.backoffs.values())
    yield from (each.until for each in memory.bookings.values())
    yield from memory.waiting.values()
    for drain in memory.drains.values():
        yield drain.since + config.settle
        yield drain.deadline if drain.deadline is not None else math.inf
        if drain.group in groups:
            yield drain.since + groups[drain.group].drain_timeout_seconds
