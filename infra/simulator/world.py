"""The simulation as a whole: the state that an autoscaler reads, and the calls it may make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from infra.autoscaler.config import Config, Group
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.node_affinity import HOSTNAME, TYPE, ZONE
from infra.autoscaler.observed.snapshot import (
    GPU,
    PODS,
    Node,
    Pod,
    Snapshot,
)
from infra.simulator.cloud import Cloud, Machine, RefusedError, Why
from infra.simulator.cluster import Cluster
from infra.simulator.event_queue import Calendar
from infra.simulator.jobs import Jobs
from infra.simulator.kueue import Choice, Kueue, Rules, Workload, given
from infra.simulator.trace import Trace

BEGINNING = 1477267200.0
"""The start of every trace: Monday, 24 October 2016, 00:00 UTC."""


class World:
    """Groups, nodes, pods and jobs, and the clock."""

    def __init__(self, config: Config, trace: Trace, *, rules: Rules | None = None) -> None:
        """``rules``: Kueue's, which admits jobs; without, all jobs start immediately."""
        self.config = config
        self.conditions = trace.conditions
        self.calendar = Calendar(BEGINNING)
        self._groups = {group.name: group for group in config.groups}
        self.cluster = Cluster(self.calendar)
        self.cloud = Cloud(
            config,
            self.conditions,
            self.calendar,
            joined=self._joined,
            ended=self._ended,
        )
        self.kueue = Kueue(rules, self.calendar, self._room) if rules is not None else None
        self.jobs = Jobs(trace, self.conditions, self.calendar, self.cluster, self.kueue)
        self.writes: Counter[str] = Counter()
        """The number of writes by kind."""
        self.ended_busy: Counter[Why] = Counter()
        """Machines terminated while work was running on them, by reason."""
        self._add_physical()

    @property
    def now(self) -> float:
        return self.calendar.now

    @property
    def version(self) -> int:
        """Incremented with every change that may affect an autoscaler."""
        queued = self.kueue.version if self.kueue is not None else 0
        return self.cloud.version + self.cluster.version + self.jobs.version + queued

    @property
    def waiting(self) -> int:
        """Pods without a node, including those not created yet."""
        return self.cluster.waiting + (self.kueue.waiting() if self.kueue is not None else 0)

    def advance(self, until: float) -> None:
        """Advance the clock. The scheduler runs after each event."""
        calendar = self.calendar
        while (at := calendar.next) is not None and at <= until:
            calendar.advance(at)
            self.cluster.schedule()
        calendar.advance(until)

    def advance_to_change(self, until: float) -> None:
        """Advance the clock until something changes that may matter, up to a time."""
        calendar, version = self.calendar, self.version
        while self.version == version and (at := calendar.next) is not None and at <= until:
            calendar.advance(at)
            self.cluster.schedule()
        if self.version == version:
            calendar.advance(until)

    def snapshot(self) -> Snapshot:
        """The snapshot that a reader would have now."""
        dark = self.cloud.dark()
        return Snapshot(
            at=self.now,
            nodes=self.cluster.nodes(),
            pods=self.cluster.pods(),
            gangs={**self.jobs.gangs, **(self.kueue.requests if self.kueue is not None else {})},
            groups=self.cloud.states(),
            errors={f"aws/{region}": "the service does not answer" for region in sorted(dark)},
            flavors=self.kueue.flavors() if self.kueue is not None else {},
        )

    # Writes

    def set_desired(self, group: str, desired: int) -> None:
        """Set a group's size."""
        self.write("SetDesiredCapacity", group, lambda: self.cloud.set_desired(group, desired))

    def terminate(self, instance: str, *, decrement: bool = True) -> None:
        """Terminate an instance of a group."""
        self.write("TerminateInstance", instance, lambda: self.cloud.terminate(instance, decrement=decrement))

    def release(self, instance: str) -> None:
        """Complete the lifecycle hook of an instance."""
        self.write("CompleteLifecycleAction", instance, lambda: self.cloud.release(instance))

    def taint(self, node: str, taint: Taint) -> None:
        """Set a taint on a node, replacing one with its key."""

        def do() -> None:
            taints = self._node(node).taints
            kept = tuple(each for each in taints if each.key != taint.key)
            self.cluster.change(node, taints=(*kept, taint))

        self.write("taint", node, do)

    def untaint(self, node: str, key: str) -> None:
        """Remove the taints with a key from a node."""

        def do() -> None:
            taints = self._node(node).taints
            self.cluster.change(node, taints=tuple(each for each in taints if each.key != key))

        self.write("untaint", node, do)

    def evict(self, uid: str) -> None:
        """Ask a pod to leave; it is lost after its grace period."""

        def do() -> None:
            work = self.cluster.works.get(uid)
            if work is None:
                raise RefusedError(f"there is no pod {uid}")
            self.cluster.leave(work, grace=work.seen.grace)

        self.write("evict", uid, do)

    def delete_node(self, node: str) -> None:
        """Delete a Node object. A running machine registers again immediately, without its pods."""

        def do() -> None:
            self._node(node)
            self.cluster.remove(node)

        self.write("delete node", node, do)

    def answer(self, request: str, condition: str) -> None:
        """Set a condition of a provisioning request."""

        def do() -> None:
            if self.kueue is not None:
                self.kueue.answer(request, condition)

        self.write("answer", request, do)

    def hold(self, flavor: str, *, on: bool) -> None:
        """Set the taint of a flavor, or remove it."""

        def do() -> None:
            if self.kueue is not None:
                self.kueue.hold(flavor, on=on)

        self.write("hold", flavor, do)

    def works_on(self, node: str) -> tuple[Pod, ...]:
        """The pods of a node in the API."""
        host = self.cluster.hosts.get(node)
        return tuple(work.seen for work in host.works.values()) if host is not None else ()

    def write(self, kind: str, name: str, do: Callable[[], None]) -> None:  # noqa: ARG002 - tests override it
        """Apply a write to an object, and run the scheduler."""
        self.writes[kind] += 1
        do()
        self.cluster.schedule()

    def _node(self, name: str) -> Node:
        host = self.cluster.hosts.get(name)
        if host is None:
            raise RefusedError(f"there is no node {name}")
        return host.seen

    # Machines and nodes

    def _room(self, choice: Choice, workload: Workload) -> bool:
        return self.cluster.room(given(workload.shape, choice), workload.count, across=workload.across)

    def _joined(self, machine: Machine) -> None:
        if machine.boots is not None:
            launched = machine.seen.launched or self.now
            self.calendar.at(launched + machine.boots, lambda: self._node_joins(machine))

    def _node_joins(self, machine: Machine) -> None:
        """The kubelet is ready. GPUs are reported once the device plugin has found them."""
        if machine.ended is not None:
            return
        group = self._groups[machine.group]
        offered = {
            name: amount if name == PODS else amount * machine.seen.weight
            for name, amount in group.allocatable.items()
        }
        self.cluster.add(
            Node(
                name=machine.node,
                uid=f"{machine.node}-uid",
                labels=_labels(group, machine),
                taints=group.taints,
                allocatable={**offered, GPU: 0} if GPU in offered else offered,
                created=self.now,
                ready=True,
                since=self.now,
                provider=f"aws:///{machine.seen.zone}/{machine.seen.id}",
            )
        )
        if GPU in offered:
            self.calendar.after(self.conditions.gpu_startup, lambda: self._gpus(machine, offered))

    def _gpus(self, machine: Machine, offered: dict[str, int]) -> None:
        if machine.ended is None and machine.node in self.cluster.hosts:
            self.cluster.change(machine.node, allocatable=offered)

    def _ended(self, machine: Machine, why: Why) -> None:
        host = self.cluster.hosts.get(machine.node)
        if host is None:
            return
        if host.works:
            self.ended_busy[why] += 1
        host.dead = True
        for work in list(host.works.values()):
            self.cluster.lose(work, asked=False)

        def unready() -> None:
            if self.cluster.hosts.get(machine.node) is host:
                self.cluster.change(machine.node, ready=False, since=self.now)

        def forgotten() -> None:
            if self.cluster.hosts.get(machine.node) is host:
                self.cluster.remove(machine.node)

        self.calendar.after(self.conditions.unready, unready)
        self.calendar.after(self.conditions.forgotten, forgotten)

    def _add_physical(self) -> None:
        for row in self.conditions.physical:
            for number in range(row.count):
                name = f"{row.name}-{number}"
                offered = {"cpu": row.cpu, "memory": row.memory << 20, GPU: row.gpus, PODS: 110}
                self.cluster.add(
                    Node(
                        name=name,
                        uid=f"{name}-uid",
                        labels={**row.labels, HOSTNAME: name},
                        allocatable={key: amount for key, amount in offered.items() if amount},
                        created=self.now,
                        ready=True,
                        since=self.now,
                    )
                )


def _labels(group: Group, machine: Machine) -> dict[str, str]:
    return {
        **group.labels,
        HOSTNAME: machine.node,
        TYPE: machine.seen.type,
        ZONE: machine.seen.zone,
        "topology.kubernetes.io/region": group.region,
    }
