"""The snapshot in order: states of machines, groups with what is coming, templates, what waits."""

from __future__ import annotations

from typing import Any

import pytest
from autoscaler import make
from autoscaler.make import GI, NOW
from msgspec.structs import replace

from infra.autoscaler.config import Config, PricedType
from infra.autoscaler.memory import Backoff, Drain, Memory
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.cluster_state import ClusterState, Machine
from infra.autoscaler.observed.snapshot import (
    DRAIN_TAINT,
    GPU,
    PODS,
    DaemonSet,
    Instance,
    Node,
    Pod,
    Snapshot,
)

WEST = make.group(zones=("us-west-2a",))
ONE = make.config(WEST)
OURS = Taint(DRAIN_TAINT, f"{NOW - 5:.0f}")


def view(
    snapshot: Snapshot, memory: Memory | None = None, config: Config = ONE, now: float = NOW
) -> ClusterState:
    return state_builder.build(snapshot, memory or Memory(), config, now)


def only(snapshot: Snapshot, memory: Memory | None = None, config: Config = ONE) -> Machine:
    (machine,) = view(snapshot, memory, config).machines
    return machine


def seen(
    node: Node | None = None, instance: Instance | None = None, *work: Pod, answers: bool = True
) -> Snapshot:
    """A machine, of which either side may be missing. ``answers``: whether AWS tells of its group."""
    states = [make.state(WEST, 1, [instance] if instance is not None else [])] if answers else []
    return make.snapshot([node] if node is not None else [], work, states)


def with_node(**more: Any) -> Snapshot:
    """One instance with its node."""
    return seen(make.node(WEST, **more), make.instance(WEST))


def with_instance(**more: Any) -> Snapshot:
    """One instance without a node."""
    return seen(None, make.instance(WEST, **more))


def ending(**more: Any) -> Snapshot:
    """A node that is ready, and its instance."""
    return seen(make.node(WEST), make.instance(WEST, **more))


# --- states -------------------------------------------------------------------------------------------------

NONE = Memory()
ID = make.instance_id(WEST, 1)
IN_TIME, LATE = (Memory(boots={ID: NOW - ONE.boot_timeout + rest}) for rest in (1, 0))
SILENT = make.node(WEST, ready=False, since=NOW - 300)
NO_GPUS = {name: amount for name, amount in WEST.allocatable.items() if name != GPU}
LOST = make.node(WEST, ready=False, created=NOW - 300, since=NOW - 40)
WORK = make.pod(gpus=4, node=LOST.name, owner=make.job())
OF_OLD = make.group(pool="of-old", zones=("us-west-2a",))


@pytest.mark.parametrize(
    ("snapshot", "memory", "state", "present", "group"),
    [
        (with_node(), NONE, "ready", True, WEST.name),
        (with_instance(), IN_TIME, "booting", True, WEST.name),
        (with_instance(), LATE, "stuck", False, WEST.name),
        (with_instance(interrupted=NOW + 100), NONE, "leaving", False, WEST.name),
        (with_node(created=NOW - 60, since=NOW - 20, allocatable=NO_GPUS), LATE, "stuck", False, WEST.name),
        (with_node(ready=False, since=NOW - 40), NONE, "unready", False, WEST.name),
        # What holds work was up: it is not ended as stuck because the memory was lost.
        (seen(LOST, make.instance(WEST), WORK), NONE, "unready", False, WEST.name),
        (seen(LOST, make.instance(WEST), WORK), LATE, "unready", False, WEST.name),
        (with_node(sick=True), NONE, "closed", False, WEST.name),
        (with_node(unschedulable=True), NONE, "closed", False, WEST.name),
        (ending(lifecycle="Standby"), NONE, "closed", False, WEST.name),
        (ending(lifecycle="Terminating:Wait"), NONE, "leaving", False, WEST.name),
        (ending(interrupted=NOW + 100, spot=True), NONE, "leaving", False, WEST.name),
        (ending(state="shutting-down"), NONE, "leaving", False, WEST.name),
        (ending(state="terminated"), NONE, "gone", False, WEST.name),
        (seen(SILENT), NONE, "gone", False, WEST.name),
        # Not because a list is old, or a region silent.
        (seen(make.node(WEST, ready=False, since=NOW - 10)), NONE, "unready", False, None),
        (seen(SILENT, answers=False), NONE, "unready", False, WEST.name),
        # Of no group: detached, physical, of a pool that is configured no more.
        (seen(make.node(WEST)), NONE, "ready", True, None),
        (seen(make.titan()), NONE, "ready", True, None),
        (seen(make.node(OF_OLD)), NONE, "ready", True, None),
        (seen(make.node(OF_OLD, ready=False, since=NOW - 300)), NONE, "gone", False, None),
    ],
)
def test_the_state_of_a_machine(
    snapshot: Snapshot, memory: Memory, state: str, present: bool, group: str | None
) -> None:
    machine = only(snapshot, memory)
    assert (machine.state, machine.present, machine.group) == (state, present, group)


def test_an_instance_without_a_node_boots_with_what_its_group_offers() -> None:
    machine = only(with_instance(lifecycle="Pending"))
    assert (machine.state, machine.node) == ("booting", None)
    assert machine.allocatable == WEST.allocatable
    assert machine.labels["topology.kubernetes.io/zone"] == "us-west-2a"
    assert machine.labels["node.kubernetes.io/instance-type"] == "p3.8xlarge"
    assert machine.taints == WEST.taints


def test_a_node_that_joins_keeps_its_groups_taints_and_loses_those_of_its_agents() -> None:
    fresh = with_node(
        ready=False,
        created=NOW - 30,
        since=NOW - 30,
        allocatable={"cpu": 31_000, "memory": 200 * GI, PODS: 110},
        taints=(*WEST.taints, Taint("node.kubernetes.io/not-ready"), Taint("node.cilium.io/agent-not-ready")),
    )
    machine = only(fresh)
    assert machine.state == "booting"
    assert {taint.key for taint in machine.taints} == {GPU}
    assert machine.allocatable[GPU] == 4
    assert machine.allocatable["cpu"] == 31_000


def test_30_a_gpu_node_boots_until_its_gpus_are_there() -> None:
    """The device plugin starts after the node is ready."""
    cluster = view(with_node(created=NOW - 60, since=NOW - 20, allocatable=NO_GPUS))
    (machine,) = cluster.machines
    assert (machine.state, machine.present, machine.allocatable[GPU]) == ("booting", True, 4)
    assert cluster.groups[WEST.name].coming == 0


@pytest.mark.parametrize(
    ("desired", "instances", "present", "coming"),
    [
        (5, [make.instance(WEST, 1), make.instance(WEST, 2)], 2, 3),
        # What leaves is replaced by its group: that is not asked for a second time.
        (2, [make.instance(WEST, 1, lifecycle="Terminating:Wait"), make.instance(WEST, 2)], 1, 1),
        (2, [make.instance(WEST, 1, interrupted=NOW + 100), make.instance(WEST, 2)], 1, 1),
        (0, [make.instance(WEST, lifecycle="Standby")], 0, 0),
        (0, [make.instance(WEST, lifecycle="Warmed:Stopped", state="stopped")], 0, 0),
    ],
)
def test_what_a_group_has_and_what_comes(
    desired: int, instances: list[Instance], present: int, coming: int
) -> None:
    group = view(make.snapshot(groups=[make.state(WEST, desired, instances)])).groups[WEST.name]
    assert (group.present, group.coming) == (present, coming)


def test_what_aws_takes_back_is_there_until_it_is_gone() -> None:
    instances = [make.instance(WEST, 1, interrupted=NOW + 100), make.instance(WEST, 2)]
    assert state_builder.present_units(make.state(WEST, instances=instances)) == 2


def test_warm_machines_are_no_machines() -> None:
    warm = make.instance(WEST, 1, lifecycle="Warmed:Stopped", state="stopped")
    asleep = make.node(WEST, 1, ready=False, since=NOW - 5000)
    assert view(make.snapshot([asleep], groups=[make.state(WEST, 0, [warm])])).machines == ()


def test_a_machine_that_drains_by_choice_may_be_had_back() -> None:
    node = make.node(WEST, taints=(*WEST.taints, OURS))
    snapshot = make.snapshot([node], groups=[make.state(WEST, instances=1)])
    drain = Drain(WEST.name, make.instance_id(WEST, 1), "tainted", NOW - 5, NOW - 5, "it is idle")
    machine = only(snapshot, Memory(drains={node.name: drain}))
    assert (machine.state, machine.back, machine.present) == ("draining", True, True)
    assert machine.taints == WEST.taints

    further = Memory(drains={node.name: replace(drain, stage="draining")})
    machine = only(snapshot, further)
    assert (machine.state, machine.back, machine.present) == ("draining", False, False)
    assert OURS in machine.taints


# --- groups and templates -----------------------------------------------------------------------------------


def test_nothing_comes_from_a_group_in_back_off() -> None:
    bar = Backoff("capacity", "We do not", NOW - 10, NOW - 10, NOW + 290, 1)
    state = make.state(WEST, desired=5, instances=2)
    group = view(make.snapshot(groups=[state]), Memory(backoffs={WEST.name: bar})).groups[WEST.name]
    assert group.backoff == bar
    assert group.coming == 0
    after = view(make.snapshot(groups=[state]), Memory(backoffs={WEST.name: bar}), now=NOW + 290)
    assert after.groups[WEST.name].backoff is None


def test_a_group_is_barred_when_all_of_its_zones_are() -> None:
    many = make.group()
    config = make.config(many)
    bars = {
        f"{many.name}/{zone}": Backoff("capacity", "", NOW, NOW, NOW + 300 + number, 1)
        for number, zone in enumerate(many.zones)
    }
    snapshot = make.snapshot(groups=[make.state(many, desired=3)])
    first, *rest = bars
    part = view(snapshot, Memory(backoffs={key: bars[key] for key in rest}), config).groups[many.name]
    assert part.backoff is None
    assert part.closed_zones == {zone: bars[f"{many.name}/{zone}"] for zone in many.zones[1:]}
    assert part.coming == 3
    whole = view(snapshot, Memory(backoffs=bars), config).groups[many.name]
    assert whole.backoff == bars[first]


def test_a_group_that_may_not_launch_is_barred() -> None:
    for state in (
        make.state(WEST, desired=3, suspended=("AZRebalance", "Launch")),
        make.state(WEST, desired=3, deleting=True),
    ):
        group = view(make.snapshot(groups=[state])).groups[WEST.name]
        assert group.backoff is not None
        assert group.backoff.code == state_builder.SUSPENDED
        assert group.coming == 0


def test_a_group_that_could_not_be_read_has_no_state() -> None:
    group = view(make.snapshot(groups=[])).groups[WEST.name]
    assert (group.state, group.present, group.coming) == (None, 0, 0)


def test_sizes_are_counted_in_units() -> None:
    types = (
        PricedType("p3.8xlarge", 1, 32, 12.24, 3.67, "on-demand-p", "spot-p"),
        PricedType("p3.16xlarge", 2, 64, 24.48, 7.34, "on-demand-p", "spot-p"),
    )
    weighted = make.group(types=types, zones=("us-west-2a",), allocatable=make.P3)
    large = make.instance(weighted, type="p3.16xlarge", weight=2)
    found = view(
        make.snapshot(groups=[make.state(weighted, desired=5, instances=[large])]),
        config=make.config(weighted),
    )
    assert (found.groups[weighted.name].present, found.groups[weighted.name].coming) == (2, 3)
    (machine,) = found.machines
    assert machine.units == 2
    assert machine.allocatable[GPU] == 8
    assert machine.allocatable[PODS] == 110
    assert "node.kubernetes.io/instance-type" not in found.groups[weighted.name].template.labels


def test_a_template_is_corrected_by_nodes_that_were_seen() -> None:
    less = {**WEST.allocatable, "cpu": 31_000, "memory": 220 * GI}
    halved = {**WEST.allocatable, "cpu": 1, GPU: 3}
    nodes = [make.node(WEST, 1, allocatable=less), make.node(WEST, 2, allocatable=halved)]
    snapshot = make.snapshot(nodes, groups=[make.state(WEST, desired=3, instances=3)])
    found = view(snapshot)
    # A node that lacks a GPU is no measure for new ones.
    assert found.groups[WEST.name].template.allocatable == less
    assert found.machines[-1].allocatable == less


def test_daemons_that_fit_a_template_are_its_overhead() -> None:
    everywhere = DaemonSet("kube-system", "flannel", make.shape(cpu=100, tolerations=(make.GPU_TOLERATION,)))
    elsewhere = DaemonSet("kube-system", "rack", make.shape(cpu=700, selector=(("rack", "a"),)))
    snapshot = make.snapshot(groups=[make.state(WEST)], daemons=(everywhere, elsewhere))
    overhead = view(snapshot).groups[WEST.name].template.overhead
    assert overhead["cpu"] == 100
    assert overhead[PODS] == 1


def test_a_price_is_that_of_the_markets() -> None:
    state = make.snapshot(groups=[])
    mixes: list[tuple[dict[str, Any], float]] = [
        ({}, 12.24),
        ({"on_demand_percent": 0}, 3.67),
        ({"on_demand_percent": 50}, (12.24 + 3.67) / 2),
        ({"on_demand_percent": 0, "on_demand_base": 1}, 12.24),
    ]
    for more, price in mixes:
        group = make.group(**more)
        template = view(state, config=make.config(group)).groups[group.name].template
        assert abs(template.price - price) < 1e-9
    spot = make.group(on_demand_percent=0)
    seen = make.snapshot(groups=[], prices={"us-west-2b/p3.8xlarge": 3.0, "us-west-2c/p3.8xlarge": 5.0})
    assert view(seen, config=make.config(spot)).groups[spot.name].template.price == 3.0


# --- pods ---------------------------------------------------------------------------------------------------


def test_pods_are_work_or_daemons_or_wait() -> None:
    node = make.node(WEST)
    pods = [
        make.pod("runs", node=node.name),
        make.pod("flannel", node=node.name, owner=make.DAEMON),
        make.pod("static", node=node.name, mirror=True),
        make.pod("done", node=node.name, phase="Succeeded"),
        make.pod("waits"),
        make.pod("gated", gated=True),
        make.pod("goes", deleting=True),
        make.pod("nominated", nominated=node.name),
        make.pod("of-daemon", owner=make.DAEMON),
    ]
    found = view(make.snapshot([node], pods, [make.state(WEST, instances=1)]))
    (machine,) = found.machines
    assert [pod.name for pod in machine.pods] == ["runs", "nominated"]
    assert [pod.name for pod in machine.daemons] == ["flannel", "static"]
    assert [pod.name for pod in found.pending] == ["waits"]


# --- health and notes ---------------------------------------------------------------------------------------


def test_32_unready_nodes_are_counted_against_ready_ones() -> None:
    """What boots in its time, never came up, drains or leaves is not held against the cluster."""
    nodes = [
        make.node(WEST, 1),
        make.node(WEST, 2, ready=False, since=NOW - 100),
        make.node(WEST, 3, ready=False, created=NOW - 30, since=NOW - 30),
        make.titan("titan-a01", ready=False),
        make.titan("titan-a02"),
    ]
    instances = [make.instance(WEST, number) for number in (1, 2, 3)]
    instances.append(make.instance(WEST, 4, launched=NOW - 5000))
    state = make.state(WEST, instances=instances)
    memory = Memory(boots={instances[3].id: NOW - 2000})
    found = view(make.snapshot(nodes, groups=[state]), memory)
    states = {each.name: each.state for each in found.machines}
    assert states[nodes[1].name] == "unready"
    assert states[nodes[2].name] == "booting"
    assert states[instances[3].id] == "stuck"
    assert (found.unready, found.ready) == (2, 2)


def test_31_groups_that_aws_may_even_out_or_shrink_are_noted() -> None:
    many = make.group()
    config = make.config(many)
    good = make.snapshot(groups=[make.state(many)])
    assert view(good, config=config).notes == {}
    bad = make.snapshot(groups=[make.state(many, suspended=("Launch",), protects=False, hooks=())])
    assert len(view(bad, config=config).notes[many.name].split("; ")) == 4
