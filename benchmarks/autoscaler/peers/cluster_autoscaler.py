"""A model of Cluster Autoscaler's policy on AWS (kubernetes/autoscaler, its AWS provider, late 2026), with
its defaults.

What it does, every 10 seconds:

1. Reads its Auto Scaling groups once a minute, and after it ended instances itself. What a group is short
of is    placeholder machines. They count as failed if any launch has failed since it last set the group's
size. 2. New failures bar the group: 5 minutes, twice as long each time up to 30, forgotten after 3 hours.
The group's    size goes back to the instances that are there.
3. Machines that are no ready node 15 minutes after they were asked for bar the group, and those that never
   registered are ended.
4. Puts pending pods on ready nodes and on those that are coming. For the rest, once the oldest of them that
   asks for cards is 30 seconds old (2 without cards), it works out for each group that is not barred how many
   machines the pods need that fit there, at most 1,000, and grows the one group that wastes the least
   processor and memory. The others have to wait for the next loop.
5. A node is unneeded if less than half of its cards (of its processor and memory, without cards) is asked for
   and its pods fit elsewhere. After 10 minutes of that, and 10 after the last growth of any group, it goes:
   ten at a time, of which one with pods on it.

It serves one region (`AWS_REGION`); ``regions`` says which. `everywhere` is one for each region beside each
other, which its documentation does not provide for: each acts on all pods.

With Kueue (``requests=True``), as ``best-effort-atomic-scale-up.autoscaling.x-k8s.io`` has it:

6. One provisioning request a loop is looked at: if all of its pods have room on nodes that are there or
   coming, or if one group can grow by all that they lack, it is provisioned at once, before the machines are
   there; else it is tried again later. It is never failed for want of capacity, and no flavor is tainted.
7. Room is kept for a provisioned request until its pods are there, for 10 minutes at most; then its booking
   has expired, and Kueue creates another.

In its favour: work is marked ``safe-to-evict: "false"``, as whoever runs batch jobs on it does, so that it
does not move any (``marked=False`` is without); its API calls take no time; ties between groups go to the
primary site and not to chance; of several requests the one that was not looked at for longest is next, and
pods and a request are both looked at in one loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.autoscaler.peers.room import Free, Rooms, by_shape, fill, takes, whole
from infra.autoscaler.config import Config, Group
from infra.autoscaler.node_properties import Resources, Taint
from infra.autoscaler.observed.snapshot import (
    GPU,
    Gang,
    GroupState,
    Instance,
    Node,
    Pod,
    Shape,
    Snapshot,
)
from infra.simulator.cloud import RefusedError
from infra.simulator.world import World

SCAN = 10.0
REFRESH = 60.0
PROVISION = 900.0
STARTUP = 900.0
BACKOFF, BACKOFF_MOST, BACKOFF_RESET = 300.0, 1800.0, 10800.0
YOUNG, YOUNG_CARDS = 2.0, 30.0
MOST_NODES = 1000
UNNEEDED, UNREADY = 600.0, 1200.0
AFTER_ADD, AFTER_FAILURE = 600.0, 180.0
HALF = 0.5
PARALLEL = 10
GRACE = 600.0
BOOKING = 600.0
TAINT = "ToBeDeletedByClusterAutoscaler"
UNREADY_SHARE, UNREADY_COUNT = 0.45, 3


@dataclass(slots=True)
class _Backoff:
    seconds: float
    until: float
    last: float


@dataclass(slots=True)
class _Request:
    """A growth that is not through."""

    increase: int
    expected: float


@dataclass(slots=True)
class _Cached:
    """A group as it was last read, with its own writes."""

    group: Group
    size: int = 0
    instances: tuple[Instance, ...] = ()
    failed: bool = False
    """Whether what is missing counts as failed."""
    fresh: bool = False
    """Whether that is new."""
    written: float = 0.0
    short: float | None = None
    """Since when placeholders have been there."""

    @property
    def active(self) -> list[Instance]:
        return [each for each in self.instances if not each.leaving]


@dataclass(slots=True)
class _Look:
    """What one loop sees."""

    now: float
    snapshot: Snapshot
    nodes: dict[str, list[Node]] = field(default_factory=dict)
    """By group: ready ones."""
    starting: dict[str, int] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    """Ready, unready, and such as never registered within their time."""
    upcoming: dict[str, int] = field(default_factory=dict)
    unready: int = 0


@dataclass(slots=True)
class _Places:
    """Room on nodes, and on such as are coming."""

    rooms: Rooms
    names: list[str]
    coming: dict[str, list[Free]]
    groups: Mapping[str, Group]

    def put(self, shape: Shape, count: int) -> int:
        """Put so many equal pods there; how many found room."""
        placed = self.rooms.put(shape, count, self.names)
        for name, bins in self.coming.items():
            group = self.groups[name]
            if placed < count and takes(group, shape):
                placed += fill(bins, shape, count - placed, group.allocatable, len(bins))
        return placed


class ClusterAutoscaler:
    """The policy."""

    interval = SCAN
    hooks = False
    protects = False

    def __init__(
        self,
        config: Config,
        regions: Sequence[str] | None = None,
        *,
        marked: bool = True,
        requests: bool = False,
    ) -> None:
        primary = next(iter(config.regions.values()))
        self.regions = tuple(regions) if regions is not None else (primary,)
        self.name = f"Cluster Autoscaler, {self.regions[0]}" + ("" if marked else ", unmarked")
        self.name += ", with Kueue" if requests else ""
        self._answers = requests
        self._tried: dict[str, float] = {}
        """Request → when it was last looked at."""
        self._booked: set[str] = set()
        """Nodes that are kept for requests."""
        self._marked = marked
        self._cache = {group.name: _Cached(group) for group in config.groups if group.region in self.regions}
        self._read = -REFRESH
        self._requests: dict[str, _Request] = {}
        self._backoffs: dict[str, _Backoff] = {}
        self._unregistered: dict[str, float] = {}
        self._unneeded: dict[str, float] = {}
        self._draining: dict[str, float] = {}
        self._last_add = self._last_failure = -AFTER_ADD

    def loop(self, world: World, snapshot: Snapshot, now: float) -> float:
        """One loop. An API error ends it."""
        if any(region in error for error in snapshot.errors for region in self.regions):
            return now
        before = sum(world.writes.values())
        try:
            self._loop(world, snapshot, now)
        except RefusedError:
            self._read = now - REFRESH
        asked = any(gang.condition in ("", "Accepted", "Provisioned") for gang in self._gangs(snapshot))
        if sum(world.writes.values()) != before or self._requests or self._draining or asked:
            return now
        return self._due(snapshot, now)

    def _due(self, snapshot: Snapshot, now: float) -> float:
        times = [since + UNNEEDED for since in self._unneeded.values()]
        times += [self._last_add + AFTER_ADD, self._last_failure + AFTER_FAILURE]
        times += [each.until for each in self._backoffs.values()]
        times += [since + PROVISION for since in self._unregistered.values()]
        times.append(now + REFRESH if any(not pod.node for pod in snapshot.pods) else now + 600)
        times += [pod.created + YOUNG_CARDS for pod in snapshot.pods if not pod.node]
        return min(time for time in times if time > now)

    def _loop(self, world: World, snapshot: Snapshot, now: float) -> None:
        if now >= self._read + REFRESH:
            self._refresh(snapshot, now)
        look = self._look(snapshot, now)
        self._judge(look)
        self._end_unregistered(world, look)
        known = sum(len(nodes) for nodes in look.nodes.values()) + look.unready
        if look.unready > UNREADY_COUNT and look.unready > UNREADY_SHARE * known:
            self._unneeded.clear()
            return
        self._take_back(world, look)
        look = self._look(snapshot, now)
        self._upcoming(look)
        waiting = [pod for pod in snapshot.pods if not pod.node and not pod.deleting and not pod.gated]
        rooms = self._rooms(world, look)
        rest = self._without_those_that_fit(rooms, waiting)
        self._provision(world, look, rooms)
        new = bool(rest) and self._all_new(rest, now)
        if rest and not new:
            self._grow(world, look, {shape: len(equal) for shape, equal in by_shape(rest).items()})
        self._shrink(world, look, new)

    # What it sees

    def _refresh(self, snapshot: Snapshot, now: float) -> None:
        self._read = now
        for name, cached in self._cache.items():
            state = snapshot.groups.get(name)
            if state is None:
                continue
            cached.size = state.desired
            cached.instances = state.instances
            short = state.desired > len(cached.active)
            failed = short and _failed_since(state, cached.written)
            cached.fresh = failed and not cached.failed
            cached.failed = failed
            cached.short = (cached.short or now) if short else None

    def _look(self, snapshot: Snapshot, now: float) -> _Look:
        look = _Look(now, snapshot)
        by_instance = {node.instance: node for node in snapshot.nodes if node.instance}
        registered = set[str]()
        for name, cached in self._cache.items():
            look.nodes[name], look.starting[name], look.counted[name] = [], 0, 0
            for each in cached.active:
                node = by_instance.get(each.id)
                if node is None:
                    since = self._unregistered.setdefault(each.id, now)
                    if now - since > PROVISION:
                        look.counted[name] += 1
                        look.unready += 1
                    continue
                registered.add(each.id)
                if whole(node, cached.group):
                    look.nodes[name].append(node)
                    look.counted[name] += 1
                elif now - node.created < STARTUP:
                    look.starting[name] += 1
                else:
                    look.counted[name] += 1
                    look.unready += 1
        known = {each.id for cached in self._cache.values() for each in cached.active}
        for instance in [each for each in self._unregistered if each not in known or each in registered]:
            del self._unregistered[instance]
        return look

    def _judge(self, look: _Look) -> None:
        """What growth is through, has failed, or takes too long."""
        now = look.now
        for name in [each for each, backoff in self._backoffs.items() if now - backoff.last > BACKOFF_RESET]:
            del self._backoffs[name]
        for name, cached in self._cache.items():
            request = self._requests.get(name)
            if request is None:
                continue
            if cached.size <= look.counted[name]:
                del self._requests[name]
            elif request.expected < now:
                self._bar(name, now)
                del self._requests[name]
            elif cached.failed and cached.fresh:
                missing = cached.size - len(cached.active)
                request.increase -= missing
                self._bar(name, now)
                if request.increase <= 0:
                    del self._requests[name]
            cached.fresh = False

    def _bar(self, name: str, now: float) -> None:
        known = self._backoffs.get(name)
        seconds = BACKOFF
        if known is not None:
            seconds = known.seconds
            if known.until < now:
                seconds = min(2 * known.seconds, BACKOFF_MOST)
        self._backoffs[name] = _Backoff(seconds, now + seconds, now)

    def _barred(self, name: str, now: float) -> bool:
        known = self._backoffs.get(name)
        return known is not None and now < known.until

    def _end_unregistered(self, world: World, look: _Look) -> None:
        for name, cached in self._cache.items():
            late = [
                each
                for each in cached.active
                if look.now - self._unregistered.get(each.id, look.now) > PROVISION
            ]
            for each in late[: max(0, cached.size - cached.group.min)]:
                self._terminate(world, cached, each.id)
            if cached.short is not None and look.now - cached.short > PROVISION:
                self._set(world, name, max(len(cached.active), cached.group.min), look.now)

    def _take_back(self, world: World, look: _Look) -> None:
        """Placeholders that count as failed are deleted: the size becomes what is there."""
        for name, cached in self._cache.items():
            if cached.failed and cached.size > len(cached.active):
                self._set(world, name, max(len(cached.active), cached.group.min), look.now)
                cached.failed = False
                self._read = look.now - REFRESH

    def _upcoming(self, look: _Look) -> None:
        for name, cached in self._cache.items():
            coming = cached.size - look.counted[name]
            if coming > 0 and name in self._requests and not self._barred(name, look.now):
                look.upcoming[name] = coming

    # Growth

    def _rooms(self, world: World, look: _Look) -> _Places:
        """Nodes that are there and such as are coming, with what is kept for requests taken off."""
        ours = {node.name for nodes in look.nodes.values() for node in nodes}
        groups = {each.id for state in look.snapshot.groups.values() for each in state.instances}
        there = [
            node
            for node in look.snapshot.nodes
            if node.name in ours or (node.ready and not node.unschedulable and node.instance not in groups)
            or (node.instance in groups and self._foreign(look, node))
        ]  # fmt: skip
        rooms = Rooms(there, look.snapshot.pods)
        names = [node.name for node in there]
        coming: dict[str, list[Free]] = {
            name: [dict(self._cache[name].group.allocatable) for _ in range(count)]
            for name, count in look.upcoming.items()
        }
        places = _Places(rooms, names, coming, {name: each.group for name, each in self._cache.items()})
        before = {name: dict(free) for name, free in rooms.free.items()}
        for gang in self._gangs(look.snapshot):
            if gang.condition != "Provisioned":
                continue
            (part,) = gang.sets
            bound = sum(pod.gang == gang.key and bool(pod.node) for pod in look.snapshot.pods)
            if bound >= part.count or look.now - gang.since > BOOKING:
                world.answer(gang.key, "BookingExpired")
            else:
                places.put(part.shape, part.count - bound)
        self._booked = {name for name, free in rooms.free.items() if free != before[name]}
        return places

    @staticmethod
    def _without_those_that_fit(places: _Places, waiting: list[Pod]) -> list[Pod]:
        """Pods that neither nodes that are there nor such as are coming have room for."""
        rest: list[Pod] = []
        for shape, pods in by_shape(waiting).items():
            rest += pods[places.put(shape, len(pods)) :]
        return rest

    def _gangs(self, snapshot: Snapshot) -> list[Gang]:
        """Provisioning requests, if it answers any."""
        if not self._answers:
            return []
        return [each for each in snapshot.gangs.values() if each.kind == "ProvisioningRequest"]

    def _provision(self, world: World, look: _Look, places: _Places) -> None:
        """One request: provisioned if there is room, or if there will be by the growth of one group."""
        # As it is now: one of another region may have answered in this very loop.
        found = [
            now
            for each in self._gangs(look.snapshot)
            if (now := world.request(each.key)) is not None and now.condition in ("", "Accepted")
        ]
        if not found:
            return
        gang = min(found, key=lambda each: (self._tried.get(each.key, 0.0), each.created))
        self._tried[gang.key] = look.now
        if not gang.condition:
            world.answer(gang.key, "Accepted")
        (part,) = gang.sets
        lacking = part.count - places.put(part.shape, part.count)
        if not lacking or self._grow(world, look, {part.shape: lacking}, whole=True):
            world.answer(gang.key, "Provisioned")

    def _foreign(self, look: _Look, node: Node) -> bool:
        """Whether a node is ready and belongs to a group of a region that is not ours."""
        for name, state in look.snapshot.groups.items():
            if name not in self._cache and any(each.id == node.instance for each in state.instances):
                return node.ready and not node.unschedulable
        return False

    @staticmethod
    def _all_new(pods: list[Pod], now: float) -> bool:
        cards = [pod.created for pod in pods if _asks_for_cards(pod)]
        return min(pod.created for pod in pods) + YOUNG > now or (
            bool(cards) and min(cards) + YOUNG_CARDS > now
        )

    def _grow(self, world: World, look: _Look, shapes: Mapping[Shape, int], *, whole: bool = False) -> bool:
        """The best of all options, and no other; with ``whole`` only one that is enough for all."""
        best: tuple[float, int, str, int] | None = None
        for order, (name, cached) in enumerate(self._cache.items()):
            group = cached.group
            if self._barred(name, look.now) or cached.size >= group.max:
                continue
            bins: list[Free] = []
            asked = {"cpu": 0, "memory": 0}
            left = sum(shapes.values())
            for shape, wanted in shapes.items():
                if takes(group, shape):
                    count = fill(bins, shape, wanted, group.allocatable, MOST_NODES)
                    left -= count
                    for resource, amount in shape.requests:
                        if resource in asked:
                            asked[resource] += count * amount
            if not bins or (whole and (left or cached.size + len(bins) > group.max)):
                continue
            waste = _waste(asked, group.allocatable, len(bins))
            if best is None or (waste, order) < best[:2]:
                best = (waste, order, name, len(bins))
        if best is None:
            return False
        _, _, name, count = best
        cached = self._cache[name]
        size = min(cached.size + count, cached.group.max)
        increase = size - cached.size
        self._set(world, name, size, look.now)
        known = self._requests.get(name)
        self._requests[name] = _Request(increase + (known.increase if known else 0), look.now + PROVISION)
        self._last_add = look.now
        return True

    def _set(self, world: World, name: str, size: int, now: float) -> None:
        world.set_desired(name, size)
        cached = self._cache[name]
        cached.size, cached.written = size, now
        cached.short = None

    # Scale-in

    def _shrink(self, world: World, look: _Look, new: bool) -> None:
        now, on = look.now, dict[str, list[Pod]]()
        for pod in look.snapshot.pods:
            if pod.node:
                on.setdefault(pod.node, []).append(pod)
        self._finish_drains(world, look, on)
        candidates = {
            node.name: (node, name)
            for name, nodes in look.nodes.items()
            for node in nodes
            if node.name not in self._draining
        }
        unneeded = [name for name, (node, _) in candidates.items() if self._idle(node, on.get(name, []))]
        unneeded += self._movable(look, candidates, on)
        self._unneeded = {name: self._unneeded.get(name, now) for name in unneeded}
        if new or now < self._last_add + AFTER_ADD or now < self._last_failure + AFTER_FAILURE:
            return
        room = {name: len(cached.active) - cached.group.min for name, cached in self._cache.items()}
        ended = 0
        for name, since in self._unneeded.items():
            node, group = candidates[name]
            if ended + len(self._draining) >= PARALLEL or now - since < UNNEEDED or room[group] <= 0:
                continue
            if on.get(name):
                if self._draining:
                    continue
                world.taint(name, Taint(TAINT, str(int(now))))
                for pod in on[name]:
                    world.evict(pod.uid)
                self._draining[name] = now
            else:
                world.taint(name, Taint(TAINT, str(int(now))))
                if world.works_on(name):
                    world.untaint(name, TAINT)
                    self._last_failure = now
                    continue
                self._terminate(world, self._cache[group], node.instance)
            room[group] -= 1
            ended += 1

    def _idle(self, node: Node, pods: list[Pod]) -> bool:
        return not pods and not node.unschedulable and node.name not in self._booked

    def _movable(
        self, look: _Look, candidates: dict[str, tuple[Node, str]], on: dict[str, list[Pod]]
    ) -> list[str]:
        """Nodes whose work fits elsewhere. Marked work moves nowhere."""
        if self._marked:
            return []
        there = [node for nodes in look.nodes.values() for node in nodes] + [
            node for node in look.snapshot.nodes if not node.instance and node.ready
        ]
        rooms = Rooms(there, look.snapshot.pods)
        names = [node.name for node in there]
        found: list[str] = []
        gone: set[str] = set()
        for name, (node, _) in candidates.items():
            pods = on.get(name, [])
            if not pods or _used(node, pods) >= HALF:
                continue
            others = [each for each in names if each != name and each not in gone]
            if all(
                rooms.put(shape, len(equal), others) == len(equal) for shape, equal in by_shape(pods).items()
            ):
                found.append(name)
                gone.add(name)
        return found

    def _finish_drains(self, world: World, look: _Look, on: dict[str, list[Pod]]) -> None:
        nodes = {node.name: node for node in look.snapshot.nodes}
        for name, since in list(self._draining.items()):
            node = nodes.get(name)
            if node is None:
                del self._draining[name]
            elif not on.get(name):
                del self._draining[name]
                for cached in self._cache.values():
                    if any(each.id == node.instance for each in cached.active):
                        self._terminate(world, cached, node.instance)
            elif look.now - since > GRACE:
                world.untaint(name, TAINT)
                del self._draining[name]
                self._last_failure = look.now

    def _terminate(self, world: World, cached: _Cached, instance: str) -> None:
        world.terminate(instance)
        cached.size -= 1
        cached.instances = tuple(each for each in cached.instances if each.id != instance)
        self._read = -REFRESH


class Everywhere:
    """One for each region, beside each other."""

    interval = SCAN
    hooks = False
    protects = False

    def __init__(self, config: Config, *, requests: bool = False) -> None:
        self.name = "Cluster Autoscaler, one a region" + (", with Kueue" if requests else "")
        self._each = [
            ClusterAutoscaler(config, [region], requests=requests) for region in config.regions.values()
        ]

    def loop(self, world: World, snapshot: Snapshot, now: float) -> float:
        """Each looks at the same moment."""
        return min(each.loop(world, snapshot, now) for each in self._each)


def _failed_since(state: GroupState, written: float) -> bool:
    """Newest first: whether one has failed before the first that is older than our write."""
    for each in state.activities:
        if each.start < written:
            return False
        if each.status == "Failed":
            return True
    return False


def _asks_for_cards(pod: Pod) -> bool:
    return any(name == GPU for name, _ in pod.shape.requests)


def _waste(asked: dict[str, int], offered: Resources, count: int) -> float:
    return sum((offered[name] * count - amount) / (offered[name] * count) for name, amount in asked.items())


def _used(node: Node, pods: list[Pod]) -> float:
    def share(resource: str) -> float:
        offered = node.allocatable.get(resource, 0)
        return sum(_amount(pod.shape, resource) for pod in pods) / offered if offered else 0.0

    return share(GPU) if node.allocatable.get(GPU, 0) else max(share("cpu"), share("memory"))


def _amount(shape: Shape, resource: str) -> int:
    return dict(shape.requests).get(resource, 0)
