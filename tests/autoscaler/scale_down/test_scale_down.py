"""What is idle goes, step by step, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from autoscaler import make
from autoscaler.scale_down_scene import Scene, kinds, of
from msgspec.structs import replace

from infra.autoscaler import memory as remembered
from infra.autoscaler.config import Config, Group, PricedType
from infra.autoscaler.decision import Evict, FreeNode, RemoveNode, TaintNode, Terminate
from infra.autoscaler.memory import Booking, Memory
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.snapshot import (
    DRAIN_TAINT,
    Budget,
    Owner,
    Pod,
)

GPU = make.group(zones=("us-west-2a",), max=200)
CPU = make.cpu_group(max=200)
SETS = Owner("ReplicaSet", "web", "uid-rs-web")


def scene(*groups: Group, **more: Any) -> Scene:
    more.setdefault("max_scale_in_percent", 100)
    more.setdefault("max_cluster_scale_in_percent", 100)
    config: Config = make.config(*(groups or (GPU,)), **more)
    return Scene(config)


def idle(**more: Any) -> tuple[Scene, str]:
    """A machine that has been idle for long enough."""
    world = scene(**more)
    (node,) = world.add(GPU, 1)
    world.settled()
    return world, node


def shared(**more: Any) -> tuple[Scene, str, str]:
    """Two machines without GPUs; for the pod of the first, ``one``, the second has room beside its own."""
    world = scene(CPU)
    small, large = world.add(CPU, 2)
    world.put(web("one", small, **more), *(web(f"other-{number}", large) for number in range(4)))
    return world, small, large


def batch(name: str, node: str = "", **more: Any) -> Pod:
    """A pod of a job with GPUs."""
    return make.pod(name, gpus=4, node=node, owner=make.job(), **more)


def web(name: str, node: str, **more: Any) -> Pod:
    """A small pod that may be moved."""
    more.setdefault("owner", SETS)
    more.setdefault("started", make.NOW - 5000)
    return make.pod(name, cpu=100, node=node, **more)


# --- 21 -----------------------------------------------------------------------------------------------------


def test_21_idle_time_counts_from_when_the_last_pod_left() -> None:
    world = scene()
    (node,) = world.add(GPU, 1)
    world.put(batch("train", node), make.pod("flannel", node=node, owner=make.DAEMON))
    assert world.loop() == ()
    world.now += 10_000
    assert world.loop() == ()
    assert world.memory.idle == {}

    del world.pods["uid-train"]
    assert world.loop() == ()
    left = world.now
    assert world.memory.idle == {node: left}
    # Tainted in time for the second look, so that it ends when its time is over and not later.
    world.now = left + world.config.idle - world.config.settle - 10.1
    assert world.loop() == ()
    assert kinds(world.loop()) == [f"TaintNode {node}"]
    world.now = left + world.config.idle - 10.1
    assert world.loop() == ()
    assert kinds(world.loop()) == [f"Terminate {node}"]


def test_21_idle_time_survives_a_restart() -> None:
    world = scene()
    (node,) = world.add(GPU, 1)
    world.loop()
    world.memory = remembered.load(remembered.dump(world.memory))
    world.now += world.config.idle
    assert kinds(world.loop()) == [f"TaintNode {node}"]


def test_21_a_machine_that_boots_is_not_idle() -> None:
    world = scene()
    state = make.state(GPU, instances=[make.instance(GPU, lifecycle="Pending", launched=make.NOW)])
    world.groups[GPU.name] = state
    assert world.loops(5) == []
    assert world.memory.idle == {}


# --- 22 -----------------------------------------------------------------------------------------------------


def test_22_taint_wait_look_again_terminate_release_remove() -> None:
    world, node = idle()
    assert kinds(world.loop()) == [f"TaintNode {node}"]
    tainted = world.now
    while world.now + 10 < tainted + world.config.settle:
        assert world.loop() == ()
    assert kinds(world.loop()) == [f"Terminate {node}"]
    assert world.groups[GPU.name].desired == 0
    assert kinds(world.loop()) == [f"Release {node}"]
    world.now += 200
    assert kinds(world.loop()) == [f"RemoveNode {node}"]
    assert world.loop() == ()
    assert world.memory == replace(Memory(), seen=world.memory.seen)


def test_22_a_pod_that_arrives_cancels_it() -> None:
    world, node = idle()
    world.loop()
    world.put(batch("late", node))
    assert kinds(world.loop()) == [f"FreeNode {node}"]
    assert world.loops(20) == []


def test_22_work_that_is_planned_on_it_cancels_it() -> None:
    world, node = idle()
    world.loop()
    world.held = frozenset({node})
    assert kinds(world.loop()) == [f"FreeNode {node}"]
    assert world.loops(10) == []


def test_22_the_wait_begins_when_the_taint_is_there() -> None:
    world, node = idle()
    world.fails = (TaintNode,)
    assert kinds(world.loops(10)) == [f"TaintNode {node}"] * 10
    world.fails = ()
    world.loop()
    assert world.loops(2) == []
    assert kinds(world.loop()) == [f"Terminate {node}"]


def test_22_what_can_be_moved_is_evicted_before_the_machine_ends() -> None:
    world, small, _ = shared()
    assert kinds(world.loop()) == [f"TaintNode {small}"]
    world.now += world.config.settle
    (evict,) = of(Evict, world.loop())
    assert (evict.pod, evict.uid, evict.node, evict.by) == ("one", "uid-one", small, None)
    assert kinds(world.loop()) == [f"Terminate {small}"]


def test_22_nothing_is_moved_where_there_is_no_room_for_it() -> None:
    world = scene(CPU)
    small, large = world.add(CPU, 2)
    world.put(web("one", small), make.pod("big", cpu=15_700, node=large, owner=make.job()))
    world.settled()
    assert world.loops(10) == []


def test_22_nothing_is_moved_that_came_a_moment_ago() -> None:
    world = scene(CPU)
    small, large = world.add(CPU, 2)
    world.put(web("one", small, started=make.NOW + 500), web("two", large, started=make.NOW + 500))
    world.settled()
    assert world.loops(10) == []


def test_22_machines_do_not_move_their_pods_onto_each_other() -> None:
    world = scene(CPU)
    names = world.add(CPU, 6)
    world.put(*(web(f"one-{name}", name) for name in names))
    tainted = {action.node for action in of(TaintNode, world.loop())}
    assert tainted
    assert tainted < {*names}


# --- 23, 25 -------------------------------------------------------------------------------------------------

STAYS: dict[str, dict[str, Any]] = {
    "a job's": {"owner": make.job()},
    "a gang's": {"owner": SETS, "gang": "PodGroup/user-ada/train"},
    "with GPUs": {"owner": SETS, "like": make.shape(gpus=1)},
    "bare": {"owner": None},
    "of something unknown": {"owner": Owner("PyTorchJob", "t", "u")},
    "with data on the node": {"owner": SETS, "local_storage": True},
    "of kube-system": {"owner": SETS, "like": make.shape(cpu=100, namespace="kube-system")},
    "annotated": {
        "owner": SETS,
        "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    },
    "not to be disrupted": {"owner": SETS, "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
    "with a volume": {"owner": SETS, "like": make.shape(cpu=100, claims=("home",))},
}


def check_stays(fields: dict[str, Any]) -> None:
    world = scene(CPU)
    small, large = world.add(CPU, 2, allocatable={**make.CPU, "nvidia.com/gpu": 4})
    world.put(
        make.pod("stays", node=small, started=make.NOW - 9000, **fields),
        *(web(f"other-{number}", large) for number in range(30)),
        *(make.pod(f"more-{number}", cpu=400, node=large, owner=make.job()) for number in range(20)),
    )
    world.settled()
    assert world.loops(10) == []


@pytest.mark.parametrize("who", ["a job's", "a gang's", "with GPUs"])
def test_23_running_batch_work_is_never_evicted_by_choice(who: str) -> None:
    check_stays(STAYS[who])


@pytest.mark.parametrize("who", sorted({*STAYS} - {"a job's", "a gang's", "with GPUs"}))
def test_25_what_can_not_be_moved_keeps_its_machine(who: str) -> None:
    check_stays(STAYS[who])


def test_25_what_is_safe_to_evict_is_moved() -> None:
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    world, small, _ = shared(owner=None, annotations=safe, local_storage=True)
    assert kinds(world.loop()) == [f"TaintNode {small}"]


def test_25_machines_that_are_annotated_to_stay_do() -> None:
    for annotation in ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt"):
        world = scene()
        world.add(GPU, 1, annotations={annotation: "true"})
        world.settled()
        assert world.loops(10) == []


# --- 24 -----------------------------------------------------------------------------------------------------


def test_24_a_refused_eviction_is_tried_again_and_then_the_machine_is_let_go() -> None:
    world, small, _ = shared()
    world.loop()
    world.budgets = (Budget("user-ada", "web", make.selector(), 0),)
    found = world.loops(40)
    tried = of(Evict, found)
    assert len(tried) == CPU.drain_timeout_seconds // 10
    assert {action.node for action in of(FreeNode, found)} == {small}
    assert len(world.notices) == 1
    assert not of(Terminate, found)
    # It is left alone for a while, and not tainted again in the next loop.
    assert not of(TaintNode, found)


def test_24_what_a_budget_refuses_is_not_begun() -> None:
    world, _, _ = shared()
    world.budgets = (Budget("user-ada", "web", make.selector(), 0),)
    world.settled()
    assert world.loops(5) == []


# --- 26 -----------------------------------------------------------------------------------------------------


def test_26_never_below_the_least_size() -> None:
    least = make.group(min=3, zones=("us-west-2a",))
    world = scene(least)
    world.add(least, 5)
    world.settled()
    world.loops(60)
    assert len(world.present(least)) == 3


def test_26_a_machine_that_weighs_more_than_was_asked_for_goes_when_idle() -> None:
    """Three units were asked for, and AWS brought a machine of four."""
    large = PricedType("p3.16xlarge", 4, 64, 24.48, 7.0, "on-demand-p", "spot-p")
    group = make.group(zones=("us-west-2a",), types=(make.P3_TYPE, large))
    world = scene(group)
    [name] = world.add(group, 1, kind=large.name)
    world.instance(name, type=large.name, weight=4)
    world.groups[group.name] = replace(world.groups[group.name], desired=3)
    world.settled()
    assert [each.node for each in of(TaintNode, world.loop())] == [name]


def test_26_a_least_size_that_was_raised_frees_what_was_tainted() -> None:
    world = scene()
    world.add(GPU, 2)
    world.settled()
    assert len(of(TaintNode, world.loop())) == 2
    world.groups[GPU.name] = replace(world.groups[GPU.name], min=2)
    assert len(of(FreeNode, world.loop())) == 2
    assert world.loops(10) == []


def test_26_no_more_than_a_share_of_a_group_goes_at_once_and_the_rest_follows() -> None:
    world = scene(max_scale_in_percent=10)
    world.add(GPU, 50)
    world.settled()
    assert len(of(TaintNode, world.loop())) == 5
    for _ in range(40):
        found = world.loop()
        assert len(of(TaintNode, found)) <= 5
        assert len(of(Terminate, found)) <= 5
    assert len(world.present(GPU)) < 5


def test_26_no_more_than_a_share_of_the_cluster_goes_at_once() -> None:
    other = make.group("us-east-1", zones=("us-east-1a",))
    world = scene(GPU, other, max_cluster_scale_in_percent=10)
    world.add(GPU, 30)
    world.add(other, 10)
    world.settled()
    first = of(TaintNode, world.loop())
    assert len(first) == 4
    # The overflow's go before the primary site's.
    assert {action.node.partition("-us-")[2][:4] for action in first} == {"east"}


def test_26_ends_are_limited_too() -> None:
    """Groups of taints that could not end for a while do not end all at once."""
    world = scene(max_scale_in_percent=10)
    world.add(GPU, 20)
    world.settled()
    world.sizes = {}
    for _ in range(3):
        world.loop()
    world.sizes = {GPU.name: 21}
    world.loops(5)
    world.sizes = {}
    assert len(of(Terminate, world.loop())) == 2


# --- 27 -----------------------------------------------------------------------------------------------------


def test_27_a_cordon_by_somebody_else_stops_us() -> None:
    world, node = idle()
    world.loop()
    world.nodes[node] = replace(world.nodes[node], unschedulable=True)
    assert kinds(world.loop()) == [f"FreeNode {node}"]
    assert world.nodes[node].unschedulable
    assert world.loops(10) == []


def test_27_our_taint_without_a_memory_is_taken_up_or_off() -> None:
    for busy in (True, False):
        world = scene()
        (node,) = world.add(GPU, 1, taints=(*GPU.taints, Taint(DRAIN_TAINT, f"{make.NOW - 900:.0f}")))
        if busy:
            world.put(batch("train", node))
        found = kinds(world.loops(5))
        assert found[0] == (f"FreeNode {node}" if busy else f"Terminate {node}")


def test_27_our_taint_on_what_is_no_groups_machine_goes() -> None:
    world = scene()
    titan = make.titan(taints=(Taint(DRAIN_TAINT, "1"),))
    world.nodes[titan.name] = titan
    assert kinds(world.loop()) == [f"FreeNode {titan.name}"]


# --- 28 -----------------------------------------------------------------------------------------------------


def test_28_a_node_is_not_deleted_while_its_machine_lives() -> None:
    world, node = idle()
    world.fails = (Terminate,)
    found = world.loops(60)
    assert len(of(Terminate, found)) > 10
    assert not of(RemoveNode, found)
    assert node in world.nodes


# --- 29 -----------------------------------------------------------------------------------------------------


def test_29_spare_machines_are_kept_first() -> None:
    world = scene(spare={"gpu-p3": 2})
    world.add(GPU, 5)
    world.settled()
    world.loops(60)
    assert len(world.present(GPU)) == 2


def test_29_spare_ones_are_kept_at_the_primary_site() -> None:
    other = make.group("us-east-1", zones=("us-east-1a",))
    world = scene(GPU, other, spare={"gpu-p3": 2})
    world.add(GPU, 2)
    world.add(other, 2)
    world.settled()
    world.loops(60)
    assert (len(world.present(GPU)), len(world.present(other))) == (2, 0)


def test_29_a_machine_on_its_way_out_is_kept_when_a_spare_one_gets_work() -> None:
    world = scene(spare={"gpu-p3": 1})
    first, second = world.add(GPU, 2)
    world.settled()
    (taint,) = of(TaintNode, world.loop())
    kept = second if taint.node == first else first
    world.put(batch("train", kept))
    assert kinds(world.loop()) == [f"FreeNode {taint.node}"]


# --- what else keeps a machine ------------------------------------------------------------------------------


def test_what_is_booked_is_kept() -> None:
    world = scene()
    (node,) = world.add(GPU, 1)
    until = world.now + 2000
    world.memory = Memory(bookings={"ProvisioningRequest/user-ada/train": Booking((node,), until)})
    world.settled()
    assert world.loops(10) == []
    world.now = until
    assert kinds(world.loop()) == [f"TaintNode {node}"]


def test_a_group_that_grows_does_not_shrink_meanwhile() -> None:
    world, node = idle()
    world.sizes = {GPU.name: 3}
    assert world.loops(5) == []
    world.sizes = {}
    assert kinds(world.loop()) == [f"TaintNode {node}"]
    world.sizes = {GPU.name: 3}
    assert world.loops(10) == []


def test_nothing_is_touched_where_pods_or_nodes_can_not_be_read() -> None:
    for what in ("kube/pods", "kube/nodes"):
        world = scene()
        world.add(GPU, 1)
        world.settled()
        world.errors = {what: "timed out"}
        before = world.memory
        assert world.loops(5) == []
        assert world.memory.idle == before.idle


def test_a_region_that_does_not_answer_keeps_what_is_known_of_it() -> None:
    other = make.group("us-east-1", zones=("us-east-1a",))
    world = scene(GPU, other)
    (west,) = world.add(GPU, 1)
    (east,) = world.add(other, 1)
    world.settled()
    world.loop()
    assert {*world.memory.drains} == {west, east}
    known = world.groups.pop(other.name)
    found = world.loops(6)
    assert {getattr(each, "node", "") for each in found} == {west}
    assert east in world.memory.drains
    world.groups[other.name] = known
    assert kinds(world.loop())[0].startswith("Terminate")


def test_sick_machines_end_when_their_work_is_done() -> None:
    world = scene(spare={"gpu-p3": 5})
    (node,) = world.add(GPU, 1, sick=True)
    world.put(batch("train", node))
    assert world.loops(10) == []
    del world.pods["uid-train"]
    found = kinds(world.loops(8))
    assert found[:2] == [f"TaintNode {node}", f"Terminate {node}"]
