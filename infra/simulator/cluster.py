"""A model of Kubernetes: nodes, pods, and a scheduler.

The scheduler takes pods in order of priority and age and binds each to the fullest node that it fits, so
that whole nodes stay free (kube-scheduler's NodeResourcesFit with ``MostAllocated``, as usual in GPU
clusters). Pods that do not fit wait and can be overtaken. A gang is bound as a whole or not at all (as by
Kueue and the coscheduling plugin), at one site unless it may run at several. Preemption is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.node_affinity import HOSTNAME
from infra.autoscaler.observed.snapshot import (
    GPU,
    Node,
    Pod,
    Shape,
)
from infra.catalogue.labels import SITE
from infra.simulator.event_queue import Calendar


@dataclass(slots=True, eq=False)
class Work:
    """A pod and its observers."""

    seen: Pod
    stopped: Callable[[Work, bool], None]
    """Called when it ends early, with whether it was asked to leave first."""
    started: Callable[[], None]
    """Called when it starts; in a gang, for each pod."""
    gang: Gathering | None = None
    host: Host | None = None


@dataclass(slots=True, eq=False)
class Gathering:
    """The waiting pods of a gang."""

    works: list[Work]
    across: bool
    key: str
    """Unique: pods that later replace lost ones of a gang form a gang of their own."""


@dataclass(slots=True, eq=False)
class Host:
    """A node."""

    seen: Node
    free: dict[str, int]
    works: dict[str, Work] = field(default_factory=dict)
    kind: int = 0
    """Its number among nodes with equal labels and taints."""
    dead: bool = False
    """Whether its machine is terminated, which is not detected yet."""

    @property
    def open(self) -> bool:
        return self.seen.ready and not self.dead


@dataclass(slots=True, eq=False)
class Queue:
    """Waiting pods with equal needs, oldest first."""

    shape: Shape
    gang: bool
    number: int
    waiting: dict[str, Work | Gathering] = field(default_factory=dict)
    tried: bool = False
    """Whether it fits no node except possibly those that have changed since."""

    @property
    def order(self) -> tuple[int, float, int]:
        """Priority, then age."""
        first = next(iter(self.waiting.values()))
        oldest = first if isinstance(first, Work) else first.works[0]
        return -self.shape.priority, oldest.seen.created, self.number


class Cluster:
    """All nodes and pods."""

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self.hosts: dict[str, Host] = {}
        self.works: dict[str, Work] = {}
        """By uid: pods that have not finished."""
        self._queues: dict[tuple[int, bool], Queue] = {}
        """By the number of a shape, and whether it is a gang's."""
        self._fresh: dict[str, Host] = {}
        """Nodes that have more room than at the scheduler's last pass."""
        self._arrived = False
        self._shapes: dict[Shape, int] = {}
        self._kinds: dict[object, int] = {}
        self._kind_of: list[tuple[Mapping[str, str], tuple[Taint, ...]]] = []
        self._fits: dict[tuple[int, int], bool] = {}
        self._nodes: tuple[Node, ...] | None = None
        self._pods: tuple[Pod, ...] | None = None
        self.waiting = 0
        """The number of pods without a node."""
        self.version = 0
        """Incremented with every change that may affect scaling: work that has to wait, and nodes that join,
        leave, change, become idle or busy. Work that starts or ends beside other work while nothing waits
        does not count."""

    # State for readers

    def nodes(self) -> tuple[Node, ...]:
        if self._nodes is None:
            self._nodes = tuple(host.seen for host in self.hosts.values())
        return self._nodes

    def pods(self) -> tuple[Pod, ...]:
        if self._pods is None:
            self._pods = tuple(work.seen for work in self.works.values())
        return self._pods

    # Nodes

    def add(self, node: Node) -> None:
        """A node joins."""
        host = self.hosts[node.name] = Host(node, dict(node.allocatable))
        self._classify(host)
        if GPU not in node.allocatable or node.allocatable[GPU]:
            self.version += 1

    def change(self, name: str, **fields: object) -> None:
        """Change fields of a node: ``ready=False``, ``taints=…``, ``allocatable=…``."""
        host = self.hosts[name]
        before = host.seen.allocatable
        host.seen = replace(host.seen, **fields)
        for resource, amount in host.seen.allocatable.items():
            host.free[resource] = host.free.get(resource, 0) + amount - before.get(resource, 0)
        self._classify(host)
        self.version += 1

    def remove(self, name: str) -> None:
        """Delete a node and its pods."""
        host = self.hosts.pop(name)
        self._fresh.pop(name, None)
        self._nodes = None
        self.version += 1
        for work in list(host.works.values()):
            self.lose(work, asked=False)

    def _classify(self, host: Host) -> None:
        labels = {key: value for key, value in host.seen.labels.items() if key != HOSTNAME}
        key = (tuple(sorted(labels.items())), host.seen.taints)
        if key not in self._kinds:
            self._kinds[key] = len(self._kind_of)
            self._kind_of.append((labels, host.seen.taints))
        host.kind = self._kinds[key]
        self._fresh[host.seen.name] = host
        self._nodes = None

    # Pods

    def submit(self, works: Iterable[Work], *, across: bool = True) -> None:
        """Submit pods; those of one gang together in one call, at one site unless they may be ``across``
        several."""
        gangs: dict[str, list[Work]] = {}
        for work in works:
            self.works[work.seen.uid] = work
            self.waiting += 1
            if work.seen.gang is None:
                self._queue(work.seen, gang=False).waiting[work.seen.uid] = work
            else:
                gangs.setdefault(work.seen.gang, []).append(work)
        for members in gangs.values():
            gathering = Gathering(members, across, members[0].seen.uid)
            for work in members:
                work.gang = gathering
            self._queue(members[0].seen, gang=True).waiting[gathering.key] = gathering
        self._pods = None
        self._arrived = True

    def _queue(self, pod: Pod, *, gang: bool) -> Queue:
        number = self._shapes.setdefault(pod.shape, len(self._shapes))
        found = self._queues.get((number, gang))
        if found is None:
            found = self._queues[number, gang] = Queue(pod.shape, gang, number)
        elif gang:  # further equal pods fit no better, but a gang may be smaller than the one that was tried
            found.tried = False
        return found

    def finish(self, work: Work) -> None:
        """A pod has finished."""
        host = self._take_away(work)
        if host is not None and (not host.works or self.waiting):
            self.version += 1

    def lose(self, work: Work, *, asked: bool) -> None:
        """A pod is lost."""
        if work.seen.uid not in self.works:
            return
        self._take_away(work)
        self.version += 1
        work.stopped(work, asked)

    def delete(self, work: Work) -> None:
        """A pod is deleted by its own controller, without calling an observer."""
        if work.seen.uid in self.works:
            self._take_away(work)
            self.version += 1

    def leave(self, work: Work, *, grace: float) -> None:
        """A pod is asked to leave, and is lost after its grace period."""
        if work.seen.deleting or work.host is None:
            return
        work.seen = replace(work.seen, deleting=True)
        self._pods = None
        self.version += 1
        self._calendar.after(grace, lambda: self.lose(work, asked=True))

    def _take_away(self, work: Work) -> Host | None:
        del self.works[work.seen.uid]
        self._pods = None
        host = work.host
        if host is None:
            self._forget(work)
            return None
        del host.works[work.seen.uid]
        for name, amount in work.seen.shape.requests:
            host.free[name] = host.free.get(name, 0) + amount
        if host.seen.name in self.hosts:
            self._fresh[host.seen.name] = host
        return host

    def _forget(self, work: Work) -> None:
        self.waiting -= 1
        queue = self._queue(work.seen, gang=work.gang is not None)
        if work.gang is None:
            queue.waiting.pop(work.seen.uid, None)
        else:
            work.gang.works.remove(work)
            if not work.gang.works:
                queue.waiting.pop(work.gang.key, None)
        self._settle(queue)

    def _settle(self, queue: Queue) -> None:
        if queue.waiting:
            queue.tried = True
        else:
            del self._queues[queue.number, queue.gang]

    # The scheduler

    def schedule(self) -> None:
        """Bind waiting pods to nodes that they fit. Fast if nothing has changed."""
        if not self._queues:
            self._fresh = {}
            return
        if not self._fresh and not self._arrived:
            return
        fresh = [self._fresh[name] for name in sorted(self._fresh)]
        self._fresh = {}
        for queue in sorted(self._queues.values(), key=lambda queue: queue.order):
            candidates = fresh if queue.tried and not queue.gang else list(self.hosts.values())
            if queue.tried and not fresh:
                continue
            hosts = [
                host
                for host in candidates
                if host.open and _has_room(host, queue.shape) and self._fit(queue, host.kind)
            ]
            hosts.sort(key=lambda host: (host.free.get(GPU, 0), host.free.get("cpu", 0), host.seen.name))
            if queue.gang:
                self._place_gangs(queue, hosts)
            else:
                self._place(queue, hosts)
            self._settle(queue)
        if self._arrived and self._queues:
            self.version += 1
        self._arrived = False

    def room(self, shape: Shape, count: int, *, across: bool) -> bool:
        """Whether this many equal pods fit now: at one site, unless they may be at several."""
        places: dict[str, int] = {}
        for host in self.hosts.values():
            if host.open and _has_room(host, shape) and fits(shape, host.seen.labels, host.seen.taints):
                site = "" if across else host.seen.labels.get(SITE, "")
                most = min(host.free.get(name, 0) // amount for name, amount in shape.requests)
                places[site] = places.get(site, 0) + most
        return max(places.values(), default=0) >= count

    def _fit(self, queue: Queue, kind: int) -> bool:
        found = self._fits.get((queue.number, kind))
        if found is None:
            found = self._fits[queue.number, kind] = fits(queue.shape, *self._kind_of[kind])
        return found

    def _place(self, queue: Queue, hosts: list[Host]) -> None:
        at = 0
        for work in list(queue.waiting.values()):
            while at < len(hosts) and not _has_room(hosts[at], queue.shape):
                at += 1
            if at == len(hosts):
                break
            assert isinstance(work, Work)
            del queue.waiting[work.seen.uid]
            self._bind(work, hosts[at])
            work.started()

    def _place_gangs(self, queue: Queue, hosts: list[Host]) -> None:
        for name, gathering in list(queue.waiting.items()):
            assert isinstance(gathering, Gathering)
            for choice in _sites(hosts, across=gathering.across):
                places = _places(queue.shape, len(gathering.works), choice)
                if places is None:
                    continue
                del queue.waiting[name]
                works = list(gathering.works)
                for work, host in zip(works, places, strict=True):
                    self._bind(work, host)
                for work in works:
                    work.started()
                break

    def _bind(self, work: Work, host: Host) -> None:
        now = self._calendar.now
        if not host.works or work.seen.created < now:
            self.version += 1
        work.seen = replace(work.seen, node=host.seen.name, phase="Running", started=now)
        work.host = host
        host.works[work.seen.uid] = work
        for name, amount in work.seen.shape.requests:
            host.free[name] = host.free.get(name, 0) - amount
        self.waiting -= 1
        self._pods = None


def fits(shape: Shape, labels: Mapping[str, str], taints: Iterable[Taint]) -> bool:
    """Whether labels and taints admit a pod of a trace, by its selector and tolerations."""
    return all(labels.get(key) == value for key, value in shape.selector) and all(
        taint.effect == "PreferNoSchedule"
        or any(
            each.key in ("", taint.key)
            and each.effect in ("", taint.effect)
            and (each.operator == "Exists" or each.value == taint.value)
            for each in shape.tolerations
        )
        for taint in taints
    )


def _has_room(host: Host, shape: Shape) -> bool:
    free = host.free
    return all(free.get(name, 0) >= amount for name, amount in shape.requests)


def _sites(hosts: list[Host], *, across: bool) -> list[list[Host]]:
    if across:
        return [hosts]
    found: dict[str, list[Host]] = {}
    for host in hosts:
        found.setdefault(host.seen.labels.get(SITE, ""), []).append(host)
    return [found[name] for name in sorted(found)]


def _places(shape: Shape, count: int, hosts: list[Host]) -> list[Host] | None:
    """A host for each of these equal pods, or None."""
    found: list[Host] = []
    for host in hosts:
        room = min((host.free.get(name, 0) // amount for name, amount in shape.requests), default=count)
        found.extend([host] * min(room, count - len(found)))
        if len(found) == count:
            return found
    return None
