"""Pods of five families and 400 instance types, as karpenter's scheduling benchmark has them.

Its facts are of ``pkg/controllers/provisioning/scheduling/scheduling_benchmark_test.go`` and
``pkg/cloudprovider/fake/instancetype.go`` in kubernetes-sigs/karpenter: types with (i+1) vCPUs, 2(i+1) GiB
and 10(i+1) pods, of which 100m and 10Mi are taken; spot in two zones and on demand in three; labels ``a``
to ``g``; seed 42. A type in a zone is a group of ours (1,200 of them), as a group's next zone can't be
asked for. Prices are its ``PriceFromResources``: 0.1 a vCPU and 0.1 a GB (1e9 bytes), scaled down for spot
by nothing. Run by ``python -m benchmarks.autoscaler.diverse``.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass

from infra.autoscaler.config import Config, Group, PricedType
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.cluster_state import ClusterState
from infra.autoscaler.observed.snapshot import (
    PODS,
    GroupState,
    Pod,
    PodTerm,
    Selector,
    Shape,
    Snapshot,
    Spread,
)
from infra.autoscaler.placement import scale_up

NOW = 1_800_000_000.0
_MI = 2**20
_ZONES = ("test-zone-1", "test-zone-2", "test-zone-3")
_CPU = (100, 250, 500, 1000, 1500)
_MEMORY = (100, 256, 512, 1024, 2048, 4096)
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Diverse:
    """What came of it."""

    seconds: float
    pods: int
    placed: int
    nodes: int
    cost: float

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.pods / self.seconds


def groups(types: int = 400) -> tuple[Group, ...]:
    """A group for each type and zone, with no limit that matters."""
    found = []
    for number in range(1, types + 1):
        price = 0.1 * number + 0.1 * (2 * number * 2**30 / 1e9)
        kind = PricedType(
            f"fake-it-{number - 1}", 1, number, price, price, "on-demand-standard", "spot-standard"
        )
        found += [
            Group(
                name=f"{kind.name}-{zone}",
                pool=kind.name,
                site="here",
                region="here",
                order=0,
                priority=0,
                min=0,
                max=100_000,
                zones=(zone,),
                types=(kind,),
                on_demand_base=0,
                on_demand_percent=100,
                labels={"integer": str(number)},
                taints=(),
                allocatable={
                    "cpu": 1000 * number - 100,
                    "memory": 2 * number * 1024 * _MI - 10 * _MI,
                    PODS: 10 * number,
                },
                drain_timeout_seconds=300,
            )
            for zone in _ZONES
        ]
    return tuple(found)


def pods(count: int) -> tuple[Pod, ...]:
    """The five families, in equal parts."""
    chance = random.Random(42)
    shapes: dict[Shape, Shape] = {}
    found: list[Pod] = []

    def letter() -> str:
        return chance.choice("abcdefg")

    def add(labels: dict[str, str], **more: object) -> None:
        asked = (("cpu", chance.choice(_CPU)), ("memory", chance.choice(_MEMORY) * _MI), (PODS, 1))
        shape = Shape("default", asked, **more)  # type: ignore[arg-type]
        shape = shapes.setdefault(shape, shape)
        number = len(found)
        found.append(Pod(f"uid-{number}", "default", f"pod-{number}", shape, labels=labels, created=NOW))

    part = count // 5
    for _ in range(part + count % 5):
        add({"my-label": letter()})
    for topology in (ZONE, HOSTNAME):
        for _ in range(part):
            labels = {"my-label": letter()}
            add(labels, spread=(Spread(topology, 1, Selector((("my-label", letter()),))),))
    for _ in range(part):
        labels = {"my-affininity": letter()}
        add(labels, together=(PodTerm(ZONE, Selector(tuple(labels.items())), ("default",)),))
    for _ in range(part):
        labels = {"app": "nginx"}
        add(labels, apart=(PodTerm(HOSTNAME, Selector(tuple(labels.items())), ("default",)),))
    return tuple(found)


def world(count: int) -> tuple[Config, Snapshot]:
    """Nothing but pods that wait."""
    config = Config("bench", "bench", {"here": "here"}, groups())
    states = {each.name: GroupState(each.name, each.region, 0, 0, each.max) for each in config.groups}
    return config, Snapshot(at=NOW, pods=pods(count), groups=states)


def measure(count: int = 20_000) -> Diverse:
    """One plan."""
    config, snapshot = world(count)
    started = time.perf_counter()
    view: ClusterState = state_builder.build(snapshot, Memory(), config, NOW)
    growth = scale_up.plan(view, snapshot, Memory(), config, NOW)
    seconds = time.perf_counter() - started
    placed = sum(each.count for each in growth.verdicts if each.outcome == "starting")
    prices = {each.name: each.types[0].on_demand or 0.0 for each in config.groups}
    cost = sum(prices[name] * units for name, units in growth.sizes.items())
    return Diverse(seconds, count, placed, sum(growth.sizes.values()), cost)


def main() -> None:
    """Print it."""
    for count in (1_000, 10_000, 20_000):
        found = measure(count)
        sys.stdout.write(
            f"{found.pods:,} pods, {found.placed:,} placed on {found.nodes:,} machines: "
            f"{found.seconds:.2f} s, {found.rate:,.0f} pods/s, ${found.cost:,.0f} an hour\n"
        )


if __name__ == "__main__":
    main()
