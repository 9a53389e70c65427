"""What goes of 2,000 nodes with 80,000 pods: ``python -m benchmarks.autoscaler.scale_in``."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from infra.autoscaler.config import Config, Group, PricedType
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.snapshot import (
    PODS,
    DaemonSet,
    GroupState,
    Instance,
    Node,
    Owner,
    Pod,
    Shape,
    Snapshot,
)
from infra.autoscaler.scale_down import planner

NOW: Final = 1_800_000_000.0
_GI: Final = 2**30
_REGIONS: Final = ("us-west-2", "us-east-1", "us-east-2", "eu-west-1")
_TYPE: Final = PricedType("m6i.4xlarge", 1, 16, 0.768, 0.31, "on-demand-standard", "spot-standard")
_OFFERS: Final = {"cpu": 15_710, "memory": 57 * _GI, PODS: 110}

JOB: Final = Owner("Job", "train", "uid-job")
SETS: Final = Owner("ReplicaSet", "web", "uid-rs")
DAEMON: Final = Owner("DaemonSet", "flannel", "uid-ds")


@dataclass(frozen=True, slots=True)
class Choice:
    """What came of it."""

    what: str
    seconds: float
    ordering: float
    nodes: int
    pods: int
    actions: Mapping[str, int]


def measure(nodes: int = 2_000, pods: int = 80_000, *, movable: bool = False) -> Choice:
    """One loop's choice, the ordering of what was read included.

    By default half of the nodes run jobs, a quarter holds small pods that could be moved, and a quarter
    nothing but daemons. ``movable``: all of them hold pods that could be moved, and none is empty.
    """
    config = Config(
        "research",
        "research",
        {region: region for region in _REGIONS},
        tuple(_group(region, order, nodes) for order, region in enumerate(_REGIONS)),
        spare={"cpu": 20},
    )
    snapshot = _snapshot(config, nodes, pods, movable)
    memory = Memory(idle={node.name: NOW - 5000 for node in snapshot.nodes})
    started = time.perf_counter()
    view = state_builder.build(snapshot, memory, config, NOW)
    ordered = time.perf_counter()
    found = planner.plan(view, frozenset(), {}, snapshot, memory, config, NOW)
    ended = time.perf_counter()
    return Choice(
        "all may be moved" if movable else "half runs jobs",
        ended - started,
        ordered - started,
        len(snapshot.nodes),
        len(snapshot.pods),
        Counter(type(action).__name__ for action in found.actions),
    )


def _group(region: str, order: int, most: int) -> Group:
    return Group(
        name=f"research-{region}-cpu",
        pool="cpu",
        site=region,
        region=region,
        order=order,
        priority=0,
        min=0,
        max=most,
        zones=tuple(f"{region}{letter}" for letter in "abc"),
        types=(_TYPE,),
        on_demand_base=0,
        on_demand_percent=100,
        labels={"causeway.dev/site": region, "causeway.dev/pool": "cpu"},
        taints=(),
        allocatable=_OFFERS,
        drain_timeout_seconds=300,
    )


def _snapshot(config: Config, nodes: int, pods: int, movable: bool) -> Snapshot:
    made: list[Node] = []
    instances: dict[str, list[Instance]] = {group.name: [] for group in config.groups}
    for number in range(nodes):
        group = config.groups[number % len(config.groups)]
        zone = group.zones[number % 3]
        instance = Instance(f"i-{number:017x}", _TYPE.name, zone, "InService", launched=NOW - 9000)
        instances[group.name].append(instance)
        made.append(
            Node(
                f"cpu-{number:05}",
                uid=f"uid-node-{number}",
                labels={**group.labels, "topology.kubernetes.io/zone": zone},
                allocatable=_OFFERS,
                created=NOW - 9000,
                ready=True,
                since=NOW - 8900,
                provider=f"aws:///{zone}/{instance.id}",
            )
        )
    return Snapshot(
        at=NOW,
        nodes=tuple(made),
        pods=tuple(_pods(made, pods, movable)),
        groups={
            group.name: GroupState(
                group.name,
                group.region,
                len(instances[group.name]),
                0,
                group.max,
                tuple(instances[group.name]),
                suspended=("AZRebalance",),
                protects=True,
                hooks=(group.hook,),
            )
            for group in config.groups
        },
        daemons=(DaemonSet("kube-system", "flannel", _shape(100, "kube-system")),),
    )


def _shape(cpu: int, namespace: str = "user-ada") -> Shape:
    return Shape(namespace, (("cpu", cpu), ("memory", _GI // 4), (PODS, 1)))


def _pods(nodes: list[Node], count: int, movable: bool) -> Iterator[Pod]:
    """Each node's share: daemons on all, and work on those that have some."""
    small = [_shape(cpu) for cpu in (50, 100, 150, 200)]
    daemon = _shape(100, "kube-system")
    share = count // len(nodes)
    for number, node in enumerate(nodes):
        kind = "moves" if movable else ("runs", "moves", "runs", "idle")[number // 4 % 4]
        for index in range(share):
            comes_along = index < 4 or kind == "idle"
            yield Pod(
                uid=f"uid-{number}-{index}",
                namespace="kube-system" if comes_along else "user-ada",
                name=f"pod-{number}-{index}",
                shape=daemon if comes_along else small[index % 4],
                owner=DAEMON if comes_along else JOB if kind == "runs" else SETS,
                node=node.name,
                phase="Running",
                created=NOW - 8000,
                started=NOW - 7990,
            )


def main() -> None:
    """Print it."""
    for movable in (False, True):
        found = measure(movable=movable)
        sys.stdout.write(
            f"{found.nodes:,} nodes, {found.pods:,} pods, {found.what}: {found.seconds:.2f} s "
            f"(ordering {found.ordering:.2f} s), {dict(found.actions)}\n"
        )


if __name__ == "__main__":
    main()
