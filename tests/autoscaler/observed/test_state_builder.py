"""The snapshot in order: states of machines, groups with what is coming, templates, what waits."""

from __future__ import annotations

from typing import Any

from autoscaler import make
from autoscaler.make import GI, NOW
from msgspec.structs import replace

from infra.autoscaler.config import Config, MachineType
from infra.autoscaler.memory import Backoff, Drain, Memory
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.cluster_state import ClusterState, Machine
from infra.autoscaler.observed.snapshot import (
    DRAIN_TAINT,
    GPU,
    PODS,
    DaemonSet,
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


def with_node(**more: Any) -> Snapshot:
    """One instance with its node."""
    return make.snapshot([make.node(WEST, **more)], groups=[make.state(WEST, instances=1)])


def with_instance(**more: Any) -> Snapshot:
    """One instance without a node."""
    return make.snapshot(groups=[make.state(WEST, instances=[make.instance(WEST, **more)])])


# --- states -------------------------------------------------------------------------------------------------


def test_a_node_is_joined_to_its_instance() -> None:
    machine = only(with_node())
    assert (machine.state, machine.group, machine.zone) == ("ready", WEST.name, "us-west-2a")
    assert machine.instance is not None
    assert machine.node is not None
    assert machine.name == machine.node.name
    assert machine.present


def test_physical_nodes_and_masters_are_of_no_group() -> None:
    master = make.changed(make.node(WEST, 9, name="master-1"), labels={"causeway.dev/site": "us-west-2"})
    machines = view(make.snapshot([make.titan(), master], groups=[make.state(WEST)])).machines
    assert [(each.name, each.group, each.state) for each in machines] == [
        ("master-1", None, "ready"),
        ("titan-a01", None, "ready"),
    ]


def test_an_instance_without_a_node_boots_with_what_its_group_offers() -> None:
    machine = only(with_instance(lifecycle="Pending"))
    assert (machine.state, machine.node) == ("booting", None)
    assert machine.allocatable == WEST.allocatable
    assert machine.labels["topology.kubernetes.io/zone"] == "us-west-2a"
    assert machine.labels["node.kubernetes.io/instance-type"] == "p3.8xlarge"
    assert machine.taints == WEST.taints


def test_a_machine_that_does_not_come_up_is_stuck_after_its_time() -> None:
    instance = make.instance(WEST)
    snapshot = make.snapshot(groups=[make.state(WEST, instances=[instance])])
    in_time = Memory(boots={instance.id: NOW - ONE.boot_timeout + 1})
    late = Memory(boots={instance.id: NOW - ONE.boot_timeout})
    assert only(snapshot, in_time).state == "booting"
    assert only(snapshot, late).state == "stuck"
    assert view(snapshot, late).unready == 0
    assert view(snapshot, in_time).unready == 0


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


def test_30_a_gpu_node_is_unready_until_its_cards_are_there() -> None:
    """The device plugin starts after the node is ready: until then the machine boots."""
    without = {name: amount for name, amount in WEST.allocatable.items() if name != GPU}
    fresh = with_node(created=NOW - 60, since=NOW - 20, allocatable=without)
    found = view(fresh)
    machine = found.machines[0]
    assert machine.state == "booting"
    assert machine.present
    assert machine.allocatable[GPU] == 4
    assert found.groups[WEST.name].coming == 0

    late = Memory(boots={make.instance_id(WEST, 1): NOW - ONE.boot_timeout})
    assert only(fresh, late).state == "stuck"


def test_a_node_that_was_up_and_is_not_is_unready() -> None:
    lost = with_node(ready=False, since=NOW - 40)
    found = view(lost)
    assert found.machines[0].state == "unready"
    assert (found.unready, found.ready) == (1, 0)
    assert not found.machines[0].present


def test_what_holds_work_was_up() -> None:
    """A node is not taken for one that boots, and ended as stuck, because the memory was lost."""
    node = make.node(WEST, ready=False, created=NOW - 300, since=NOW - 40)
    work = make.pod(gpus=4, node=node.name, owner=make.job())
    snapshot = make.snapshot([node], [work], [make.state(WEST, instances=1)])
    boots = Memory(boots={make.instance_id(WEST, 1): NOW - 5000})
    assert only(snapshot).state == "unready"
    assert only(snapshot, boots).state == "unready"


def test_sick_and_cordoned_nodes_take_no_work() -> None:
    assert only(with_node(sick=True)).state == "closed"
    assert only(with_node(unschedulable=True)).state == "closed"
    assert view(with_node(sick=True)).ready == 1


def test_a_machine_that_aws_takes_away_is_leaving() -> None:
    for gone in (
        make.instance(WEST, lifecycle="Terminating:Wait"),
        make.instance(WEST, interrupted=NOW + 100, spot=True),
        make.instance(WEST, state="shutting-down"),
    ):
        state = make.state(WEST, desired=1, instances=[gone])
        found = view(make.snapshot([make.node(WEST)], groups=[state]))
        assert found.machines[0].state == "leaving"


def test_what_leaves_is_not_counted_and_its_replacement_comes() -> None:
    leaving = make.instance(WEST, 1, lifecycle="Terminating:Wait")
    state = make.state(WEST, desired=2, instances=[leaving, make.instance(WEST, 2)])
    group = view(make.snapshot(groups=[state])).groups[WEST.name]
    assert (group.present, group.coming) == (1, 1)


def test_a_node_whose_instance_is_no_more_is_gone() -> None:
    silent = make.node(WEST, ready=False, since=NOW - 300)
    empty = [make.state(WEST)]
    assert only(make.snapshot([silent], groups=empty)).state == "gone"
    terminated = make.state(WEST, instances=[make.instance(WEST, state="terminated")])
    assert only(make.snapshot([make.node(WEST)], groups=[terminated])).state == "gone"


def test_a_node_of_a_pool_of_old_is_gone_when_it_is_silent() -> None:
    old = make.group(pool="of-old", zones=("us-west-2a",))
    silent = make.node(old, ready=False, since=NOW - 300)
    assert only(make.snapshot([silent], groups=[make.state(WEST)])).state == "gone"
    assert only(make.snapshot([make.node(old)], groups=[make.state(WEST)])).state == "ready"


def test_what_aws_takes_back_is_replaced_by_its_group() -> None:
    """Its replacement counts as coming, and is not asked for a second time."""
    instances = [make.instance(WEST, 1, interrupted=NOW + 100), make.instance(WEST, 2)]
    state = make.state(WEST, instances=instances)
    group = view(make.snapshot(groups=[state])).groups[WEST.name]
    assert (group.present, group.coming) == (1, 1)
    assert state_builder.present_units(state) == 2


def test_a_node_is_not_gone_because_a_list_is_old_or_a_region_silent() -> None:
    just = make.node(WEST, ready=False, since=NOW - 10)
    assert only(make.snapshot([just], groups=[make.state(WEST)])).state == "unready"
    silent = make.node(WEST, ready=False, since=NOW - 300)
    machine = only(make.snapshot([silent], groups=[]))
    assert (machine.state, machine.group, machine.instance) == ("unready", WEST.name, None)


def test_a_detached_machine_is_nobodys() -> None:
    machine = only(make.snapshot([make.node(WEST)], groups=[make.state(WEST)]))
    assert (machine.state, machine.group) == ("ready", None)


def test_warm_machines_count_for_nothing() -> None:
    warm = make.instance(WEST, 1, lifecycle="Warmed:Stopped", state="stopped")
    state = make.state(WEST, desired=0, instances=[warm])
    asleep = make.node(WEST, 1, ready=False, since=NOW - 5000)
    found = view(make.snapshot([asleep], groups=[state]))
    assert found.machines == ()
    assert found.groups[WEST.name].present == 0


def test_a_machine_in_standby_is_left_alone() -> None:
    aside = make.instance(WEST, lifecycle="Standby")
    found = view(make.snapshot([make.node(WEST)], groups=[make.state(WEST, 0, [aside])]))
    assert found.machines[0].state == "closed"
    assert found.groups[WEST.name].present == 0


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


def test_what_is_asked_for_and_not_there_is_coming() -> None:
    state = make.state(WEST, desired=5, instances=2)
    group = view(make.snapshot(groups=[state])).groups[WEST.name]
    assert (group.present, group.coming) == (2, 3)


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
        MachineType("p3.8xlarge", 1, 32, 12.24, 3.67, "on-demand-p", "spot-p"),
        MachineType("p3.16xlarge", 2, 64, 24.48, 7.34, "on-demand-p", "spot-p"),
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
    # A node that lacks a card is no measure for new ones.
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


def test_machines_are_in_order_of_their_names() -> None:
    nodes = [make.node(WEST, number) for number in (3, 1, 2)]
    state = make.state(WEST, instances=4)
    names = [each.name for each in view(make.snapshot(nodes, groups=[state])).machines]
    assert names == sorted(names)
    assert len(names) == 4
