"""Work that asks for Elastic Fabric Adapters and huge pages, on pools as they are rendered."""

from __future__ import annotations

from autoscaler.make import GI, NOW, group, instance, node, pods, shape, snapshot, state
from autoscaler.make import config as configuration
from golden_clusters import golden

from infra.autoscaler import config
from infra.autoscaler.config import Config, PricedType
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.snapshot import Shape, Snapshot
from infra.autoscaler.placement import scale_up
from infra.autoscaler.placement.scale_up import Growth
from infra.catalogue import efa
from infra.render.kubernetes import autoscaler

PAGES = efa.HUGE_PAGES_MIB << 20


def plan(seen: Snapshot, of: Config) -> Growth:
    return scale_up.plan(state_builder.build(seen, Memory(), of, NOW), seen, Memory(), of, NOW)


def wanted(gpus: int, adapters: int, pages: int) -> Shape:
    return shape(gpus=gpus, extra={efa.RESOURCE: adapters, efa.HUGE_PAGES_RESOURCE: pages})


def test_machines_are_started_for_pods_that_ask_for_adapters_and_huge_pages() -> None:
    of = config.parse(autoscaler.configuration(golden("research")))
    p5 = next(each for each in of.groups if each.pool == "gpu-p5")
    assert (p5.allocatable[efa.RESOURCE], p5.allocatable[efa.HUGE_PAGES_RESOURCE]) == (32, PAGES)
    whole = wanted(8, 32, PAGES)
    assert plan(snapshot(pods=pods(3, like=whole), of=of), of).sizes == {p5.name: 3}
    # More than any machine has, of either.
    for much in (wanted(8, 33, PAGES), wanted(8, 32, PAGES + (2 << 20))):
        (verdict,) = plan(snapshot(pods=pods(1, like=much), of=of), of).verdicts
        assert verdict.outcome == "never"
    # Two halves share a machine, and two that want more than half of the adapters do not.
    halves, larger = wanted(4, 16, PAGES // 2), wanted(4, 17, PAGES // 2)
    assert plan(snapshot(pods=pods(2, like=halves), of=of), of).sizes == {p5.name: 1}
    assert plan(snapshot(pods=pods(2, like=larger), of=of), of).sizes == {p5.name: 2}


def test_huge_pages_are_no_memory() -> None:
    groups = config.parse(autoscaler.configuration(golden("research"))).groups
    p4d, p3 = (next(each for each in groups if each.pool == pool) for pool in ("gpu-p4d", "gpu-p3"))
    # Of 1,152 GiB, what the kernel, the kubelet and the system keep, and 10 GiB of huge pages.
    assert p4d.allocatable["memory"] == (int(1179648 * 0.925) - 1465 - 2048 - 500 - 10256) << 20
    assert not efa.OF_A_MACHINE & {*p3.allocatable}


def test_a_machine_that_counts_as_two_has_its_adapters_once() -> None:
    """Those that its launch template attaches, whichever of the pool's types it is."""
    small, large = (
        PricedType(name, weight, cpus, 1.0, 0.5, "on-demand-g", "spot-g")
        for name, weight, cpus in (("g5.24xlarge", 1, 96), ("g5.48xlarge", 2, 192))
    )
    offers = {"cpu": 95000, "memory": 300 * GI, "pods": 110, efa.RESOURCE: 1, efa.HUGE_PAGES_RESOURCE: PAGES}
    of = group(pool="gpu-g5", types=(small, large), allocatable=offers)
    settings = configuration(of)
    boots = instance(of, 1, type=large.name, weight=2)
    seen = snapshot(groups=[state(of, 2, [boots])], of=settings)
    (machine,) = state_builder.build(seen, Memory(), settings, NOW).machines
    assert machine.allocatable["cpu"] == 2 * offers["cpu"]
    assert {name: machine.allocatable[name] for name in efa.OF_A_MACHINE} == {
        name: offers[name] for name in efa.OF_A_MACHINE
    }
    # One that is up, with twice the processors and one adapter, is all that it is to be.
    up = node(of, 1, kind=large.name, allocatable={**offers, "cpu": 190000, "memory": 600 * GI})
    seen = snapshot(nodes=[up], groups=[state(of, 2, [boots])], of=settings)
    (machine,) = state_builder.build(seen, Memory(), settings, NOW).machines
    assert machine.state == "ready"
