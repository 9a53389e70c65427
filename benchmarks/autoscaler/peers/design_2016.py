"""A model of the 2016 design: openai/kubernetes-ec2-autoscaler (archived), with its defaults.

What it does, every 60 seconds:

1. Reads scaling activities that are newer than the newest completed one it saw. A failed launch sets the
   group back to the size before the one that failed, and bars the group for an hour. A loop without new
   failures lifts the bar again: that hour lasts one loop.
2. Puts pending pods on live nodes, first fit; the rest, by equal node selectors, on groups in the order of
   region, one-zone groups first, spot first, name: the size becomes registered nodes + machines needed + 5,
   at most the group's largest. Machines that boot are not counted, so the same pods ask for the same size
   again.
3. Looks at each node; the first that holds: the group is at its least size; busy; a pending pod would fit;
less    than 30 minutes into an hour since its launch; younger than 55 minutes; one of the first five idle
nodes    of its group, and younger than a week; otherwise it is cordoned, and ended in the next loop if it
is still    idle. Ages are what remains of a day. If more than a tenth of all machines would end, none does.
4. Machines that are no node after 25 minutes are ended, and their group starts others.

`Design(mended=True)` is the design as it was meant: the hour is an hour, and a tenth of the machines ends
where more would.

In favour of both: they know today's words for missing capacity (its own expressions know those of 2016
alone), taints of groups, and cards that a node is still to offer (in 2016 a kubelet had them from the
start); and it costs by the second, though it was made for the hour.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter

from msgspec.structs import replace

from benchmarks.autoscaler.peers.room import Free, Rooms, by_shape, fill, takes
from infra.autoscaler.config import Config, Group
from infra.autoscaler.observed.snapshot import GPU, Activity, GroupState, Node, Pod, Snapshot
from infra.simulator.cloud import RefusedError
from infra.simulator.cluster import fits
from infra.simulator.world import World

SLEEP = 60.0
OVER_PROVISION = 5
IDLE_THRESHOLD = 3300
TYPE_IDLE_THRESHOLD = 7 * 86400
TYPE_IDLE_COUNT = 5
LAUNCH_HOUR = 1800
INIT_TIME = 25 * 60
SCALE_IN_FRACTION = 0.1
TIMEOUT = 3600.0

_LAUNCH = re.compile(r"increasing the capacity from (?P<was>\d+) to (?P<to>\d+)\.")


class Design:
    """The policy."""

    interval = SLEEP
    hooks = False
    protects = False

    def __init__(self, config: Config, *, mended: bool = False) -> None:
        self.name = "2016 design, mended" if mended else "2016 design"
        self._mended = mended
        self._groups = {group.name: group for group in config.groups}
        regions = list(config.regions.values())
        self._order = sorted(
            config.groups,
            key=lambda group: (
                regions.index(group.region),
                len(group.zones) > 1,
                not group.spot_only,
                group.name,
            ),
        )
        self._timeouts: dict[str, float] = {}
        self._seen: dict[str, str] = {}
        """Region → the newest completed activity."""
        self._desired: dict[str, int] = {}
        self._group_of: dict[str, str] = {}

    def loop(self, world: World, snapshot: Snapshot, now: float) -> float:
        """One loop. An API error ends it, as it did."""
        with contextlib.suppress(RefusedError):
            self._loop(world, snapshot, now)
        return now

    def _loop(self, world: World, snapshot: Snapshot, now: float) -> None:
        if snapshot.errors:
            return
        self._desired = {name: state.desired for name, state in snapshot.groups.items()}
        self._group_of = {
            each.id: name for name, state in snapshot.groups.items() for each in state.instances
        }
        running = {
            each.id: (state, each.launched or now)
            for state in snapshot.groups.values()
            for each in state.instances
            if each.state == "running"
        }
        self._refresh(world, snapshot, now)
        pending = [pod for pod in snapshot.pods if not pod.node and not pod.deleting]
        self._scale_up(world, snapshot, pending, running, now)
        self._maintain(world, snapshot, pending, running, now)

    # 1. Failures

    def _refresh(self, world: World, snapshot: Snapshot, now: float) -> None:
        regions: dict[str, list[Activity]] = {}
        for state in snapshot.groups.values():
            regions.setdefault(state.region, []).extend(state.activities)
        for region, activities in regions.items():
            activities.sort(key=lambda each: (-each.start, each.id))
            fresh: dict[str, list[Activity]] = {}
            for each in activities:
                if each.id == self._seen.get(region) or each.start < now - TIMEOUT:
                    break
                fresh.setdefault(each.group, []).append(each)
            if activities:
                self._seen[region] = activities[0].id
            for name, state in snapshot.groups.items():
                if state.region != region or self._failed(world, name, fresh.get(name, [])):
                    continue
                if not self._mended or self._timeouts.get(name, 0) <= now:
                    self._timeouts.pop(name, None)

    def _failed(self, world: World, name: str, activities: list[Activity]) -> bool:
        for each in activities:
            if each.status not in ("Failed", "Cancelled"):
                continue
            found = _LAUNCH.search(each.cause)
            if found and self._desired[name] > int(found["was"]):
                self._set(world, name, int(found["was"]))
                self._timeouts[name] = each.start + TIMEOUT
            return True
        return False

    def _barred(self, name: str, now: float) -> bool:
        return now < self._timeouts.get(name, 0)

    # 2. Growth

    def _scale_up(
        self,
        world: World,
        snapshot: Snapshot,
        pending: list[Pod],
        running: dict[str, tuple[GroupState, float]],
        now: float,
    ) -> None:
        live = [
            self._with_cards(node)
            for node in snapshot.nodes
            if not node.unschedulable and (not node.instance or node.instance in running)
        ]
        rooms = Rooms(live, snapshot.pods)
        names = [node.name for node in live]
        rest: dict[tuple[tuple[str, str], ...], list[Pod]] = {}
        for shape, pods in by_shape(pending).items():
            placed = rooms.put(shape, len(pods), names)
            if pods[placed:]:
                rest.setdefault(shape.selector, []).extend(pods[placed:])
        for pods in rest.values():
            self._fulfil(world, snapshot, pods, now)

    def _with_cards(self, node: Node) -> Node:
        """A node that has no cards yet, as it will be."""
        group = self._groups.get(self._group_of.get(node.instance, ""))
        cards = group.allocatable.get(GPU, 0) if group is not None else 0
        if cards == node.allocatable.get(GPU, 0) or not cards:
            return node
        return replace(node, allocatable={**node.allocatable, GPU: cards})

    def _fulfil(self, world: World, snapshot: Snapshot, pods: list[Pod], now: float) -> None:
        for group in self._order:
            state = snapshot.groups.get(group.name)
            if not pods:
                return
            if state is None:
                continue
            instances = {each.id for each in state.instances}
            nodes = [node for node in snapshot.nodes if node.instance in instances]
            cordoned = [node for node in nodes if node.unschedulable]
            barred = self._barred(group.name, now)
            if (barred or state.max == self._desired[group.name]) and not cordoned:
                continue
            bins: list[Free] = []
            assigned: list[list[Pod]] = []
            unplaced: list[Pod] = []
            for shape, equal in by_shape(pods).items():
                if not takes(group, shape):
                    unplaced += equal
                    continue
                for pod in equal:
                    before = len(bins)
                    fill(bins, shape, 1, group.allocatable, 10**6)
                    if len(bins) > before:
                        assigned.append([pod])
                    else:
                        assigned[-1].append(pod)
            needed = len(bins)
            if needed == 0:
                continue
            needed += OVER_PROVISION
            actual = len(nodes)
            allowed = self._desired[group.name] - actual if barred else state.max - actual
            requested = max(0, min(needed, allowed))
            self._scale(world, group, actual + requested, nodes, cordoned)
            unplaced += [pod for some in assigned[requested:] for pod in some]
            pods = unplaced

    def _scale(self, world: World, group: Group, size: int, nodes: list[Node], cordoned: list[Node]) -> None:
        size = min(group.max, size)
        schedulable = len(nodes) - len(cordoned)
        for node in cordoned:
            if schedulable >= size:
                break
            world.cordon(node.name, on=False)
            schedulable += 1
        if self._desired[group.name] < size:
            self._set(world, group.name, size)

    def _set(self, world: World, name: str, size: int) -> None:
        world.set_desired(name, max(size, self._groups[name].min))
        self._desired[name] = size

    # 3. and 4. Upkeep

    def _maintain(
        self,
        world: World,
        snapshot: Snapshot,
        pending: list[Pod],
        running: dict[str, tuple[GroupState, float]],
        now: float,
    ) -> None:
        busy = {pod.node for pod in snapshot.pods if pod.node}
        shapes = by_shape(pending)
        idle: Counter[str] = Counter()
        to_end: list[tuple[Node, GroupState]] = []
        to_delete: list[Node] = []
        managed = [node for node in snapshot.nodes if node.instance]
        counts = Counter(running[node.instance][0].name for node in managed if node.instance in running)
        for node in managed:
            if node.instance not in running:
                to_delete.append(node)
                continue
            state, launched = running[node.instance]
            if counts[state.name] <= state.min:
                continue
            if node.name in busy:
                if node.unschedulable:
                    world.cordon(node.name, on=False)
                continue
            if not node.unschedulable and any(fits(shape, node.labels, node.taints) for shape in shapes):
                continue
            age = (now - launched) % 86400
            spare = idle[state.name] < TYPE_IDLE_COUNT
            if not node.unschedulable:
                if age % 3600 < LAUNCH_HOUR:
                    continue
                if not spare and age <= IDLE_THRESHOLD:
                    continue
                if spare and age <= TYPE_IDLE_THRESHOLD:
                    idle[state.name] += 1
                    continue
                world.cordon(node.name, on=True)
                continue
            to_end.append((node, state))
            to_delete.append(node)
        self._end_unmanaged(world, snapshot, {node.instance for node in managed}, now)
        total = max(sum(len(state.instances) for state in snapshot.groups.values()), len(managed))
        most = math.ceil(SCALE_IN_FRACTION * total)
        if max(len(to_end), len(to_delete)) > most:
            if not self._mended:
                return
            to_end = to_end[:most]
            ending = {node.name for node, _ in to_end}
            to_delete = [node for node in to_delete if node.name in ending or node.instance not in running]
        for node, state in to_end:
            world.terminate(node.instance, decrement=self._desired[state.name] > state.min)
            self._desired[state.name] -= 1
        for node in to_delete:
            world.delete_node(node.name)

    @staticmethod
    def _end_unmanaged(world: World, snapshot: Snapshot, known: set[str], now: float) -> None:
        for state in snapshot.groups.values():
            for each in state.instances:
                old = (now - (each.launched or now)) % 86400 >= INIT_TIME
                if each.id not in known and each.state == "running" and old:
                    world.terminate(each.id, decrement=False)
