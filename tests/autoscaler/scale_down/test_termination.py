"""What ends in any case: interruptions, lifecycle hooks, machines that never came up or were lost."""

from __future__ import annotations

from typing import Any

import pytest
from autoscaler import make
from autoscaler.scale_down_scene import Scene, kinds, of
from msgspec.structs import replace

from infra.autoscaler.decision import Evict, FreeNode, Release, TaintNode, Tell, Terminate
from infra.autoscaler.observed.snapshot import Budget, Owner

GPU = make.group(zones=("us-west-2a",), max=200)
WAITS = "Terminating:Wait"


def scene(**more: Any) -> Scene:
    return Scene(make.config(GPU, **more))


def running(world: Scene, node: str) -> None:
    """Work on a node, and what comes with it."""
    world.put(
        *(
            make.pod(f"train-{number}", gpus=1, node=node, owner=make.job(), gang="Job/user-ada/train")
            for number in range(2)
        ),
        make.pod("flannel", node=node, owner=make.DAEMON),
    )


def at_work(**instance: Any) -> tuple[Scene, str]:
    """A machine with work on it, whose instance is like this."""
    world = scene()
    (node,) = world.add(GPU, 1)
    running(world, node)
    if instance:
        world.instance(node, **instance)
    return world, node


def leaving(world: Scene) -> None:
    """All pods are asked to leave."""
    world.pods = {uid: replace(pod, deleting=True) for uid, pod in world.pods.items()}


# --- spot ---------------------------------------------------------------------------------------------------


def test_an_interrupted_machine_is_emptied_at_once_and_its_pods_are_told() -> None:
    end = make.NOW + 120
    world, node = at_work(spot=True, interrupted=end)
    found = world.loop()
    assert kinds(found) == [f"TaintNode {node}", f"Evict {node}", f"Evict {node}"]
    assert {action.by for action in found if isinstance(action, Evict)} == {end}
    # Its group replaces it: it is AWS that ends it, and the size stays.
    assert world.loops(5) == []
    assert world.groups[GPU.name].desired == 1
    assert any("train-0, user-ada/train-1" in text for text in world.notices)


def test_an_interrupted_machine_that_reaches_its_hook_is_released() -> None:
    world, node = at_work(interrupted=make.NOW + 120)
    world.loop()
    world.instance(node, lifecycle=WAITS)
    assert kinds(world.loop()) == [f"Release {node}"]


# --- hooks --------------------------------------------------------------------------------------------------


def test_what_its_group_ends_is_drained_and_released() -> None:
    """Instance refreshes, capacity rebalancing and the longest lifetime end machines that work."""
    world, node = at_work()
    world.put(make.pod("page", node=node, owner=Owner("ReplicaSet", "page", "uid-rs-page")))
    world.instance(node, lifecycle=WAITS)
    first = world.loop()
    end = world.now + GPU.drain_timeout_seconds
    # What can be had elsewhere goes at once; what would lose its work is told, and left as long as may be.
    assert sorted(kinds(first)) == [f"Evict {node}", f"TaintNode {node}", f"Tell {node}", f"Tell {node}"]
    assert {action.by for action in first if isinstance(action, Evict | Tell)} == {end}
    while world.now + world.config.interval + 30 + 60 < end:
        assert world.loop() == ()
    assert len(of(Evict, world.loop())) == 2
    assert kinds(world.loop()) == [f"Release {node}"]


def test_work_that_ends_in_time_is_not_evicted() -> None:
    world, node = at_work(lifecycle=WAITS)
    world.loop()
    world.pods = {}
    assert kinds(world.loop()) == [f"Release {node}"]


def test_grace_periods_are_waited_for() -> None:
    world, node = at_work(lifecycle=WAITS)
    world.fails = (Evict,)
    world.loop()
    leaving(world)
    assert world.loops(5) == []
    world.pods = {}
    assert kinds(world.loop()) == [f"Release {node}"]


def test_evictions_that_are_refused_are_tried_until_time_is_up() -> None:
    world = scene()
    (node,) = world.add(GPU, 1)
    world.put(make.pod("page", node=node, owner=Owner("ReplicaSet", "page", "uid-rs-page")))
    world.budgets = (Budget("user-ada", "train", make.selector(), 0),)
    world.instance(node, lifecycle=WAITS)
    found = world.loops(GPU.drain_timeout_seconds // 10)
    assert len(of(Evict, found)) == GPU.drain_timeout_seconds // 10
    assert not of(Release, found)
    assert len({action.by for action in found if isinstance(action, Evict)}) == 1
    assert kinds(world.loop()) == [f"Release {node}"]


@pytest.mark.parametrize("lifecycle", [WAITS, "Warmed:Terminating:Wait"])
def test_what_ends_without_a_node_is_released_at_once(lifecycle: str) -> None:
    world = scene()
    instance = make.instance(GPU, lifecycle=lifecycle)
    world.groups[GPU.name] = make.state(GPU, 0, [instance])
    (release,) = of(Release, world.loop())
    assert (release.instance, release.node) == (instance.id, "")


def test_a_machine_beyond_its_hook_is_left_to_end() -> None:
    world, _ = at_work(lifecycle="Terminating:Proceed")
    assert world.loops(5) == []


def test_an_interruption_while_it_drains_by_choice_takes_over() -> None:
    world = scene()
    (node,) = world.add(GPU, 1)
    world.settled()
    assert kinds(world.loop()) == [f"TaintNode {node}"]
    world.instance(node, interrupted=world.now + 120)
    assert world.loops(5) == []
    assert world.memory.drains[node].forced


# --- machines that do not come up ---------------------------------------------------------------------------


def test_a_machine_that_never_joined_is_terminated() -> None:
    world = scene()
    instances = [make.instance(GPU, number, launched=make.NOW) for number in (1, 2)]
    world.groups[GPU.name] = make.state(GPU, instances=instances)
    world.nodes["gpu-1"] = make.node(GPU, 1, name="gpu-1")
    running(world, "gpu-1")
    assert world.loop() == ()
    world.now += world.config.boot_timeout - 20
    assert world.loop() == ()
    (terminate, *_) = of(Terminate, world.loop())
    assert (terminate.instance, terminate.node, terminate.forced) == (instances[1].id, "", True)


def test_a_node_that_joined_and_never_was_ready_is_terminated() -> None:
    world = scene()
    (node,) = world.add(GPU, 1, ready=False, created=make.NOW - 30, since=make.NOW - 30)
    world.loop()
    world.now += world.config.boot_timeout
    assert kinds(world.loop())[0] == f"Terminate {node}"


def test_machines_that_do_not_come_up_end_a_share_at_a_time() -> None:
    world = scene(max_scale_in_percent=10, max_cluster_scale_in_percent=10)
    instances = [make.instance(GPU, number, launched=make.NOW) for number in range(1, 41)]
    world.groups[GPU.name] = make.state(GPU, instances=instances)
    world.loop()
    world.now += world.config.boot_timeout
    assert len(of(Terminate, world.loop())) == 4


def test_a_broken_machine_of_a_group_at_its_least_size_is_replaced() -> None:
    least = make.group(min=1, zones=("us-west-2a",))
    world = Scene(make.config(least))
    world.groups[least.name] = make.state(least, instances=[make.instance(least, launched=make.NOW)])
    world.loop()
    world.now += world.config.boot_timeout
    (terminate,) = of(Terminate, world.loop())
    assert terminate.forced
    assert world.groups[least.name].desired == 1


# --- machines that were lost --------------------------------------------------------------------------------


def test_a_lost_machine_without_work_ends_after_a_while() -> None:
    world = scene()
    (node,) = world.add(GPU, 1, ready=False, since=make.NOW)
    world.loop()
    world.now = make.NOW + world.config.boot_timeout - 20
    assert world.loop() == ()
    world.loop()
    assert kinds(world.loop())[0] in (f"Terminate {node}", f"Release {node}")


def test_a_lost_machine_with_work_that_may_come_back_is_kept() -> None:
    world = scene()
    (node,) = world.add(GPU, 1, ready=False, since=make.NOW)
    running(world, node)
    world.loop()
    world.now += 10_000
    assert world.loops(5) == []
    # Its pods were given up by the cluster: nothing holds it any more.
    leaving(world)
    assert kinds(world.loop()) == [f"Terminate {node}"]


def test_a_lost_machine_whose_pods_are_stuck_is_released_at_once() -> None:
    """A kubelet that is gone ends no pod: nothing is gained by waiting for `drain_timeout`."""
    world = scene()
    (node,) = world.add(GPU, 1, ready=False, since=make.NOW)
    running(world, node)
    leaving(world)
    world.loop()
    world.now += world.config.boot_timeout
    assert kinds(world.loop()) == [f"Terminate {node}"]
    assert kinds(world.loop()) == [f"Release {node}"]


def test_pods_of_a_machine_that_is_silent_for_a_moment_have_their_time() -> None:
    world, node = at_work()
    leaving(world)
    world.instance(node, lifecycle=WAITS)
    world.loop()
    world.nodes[node] = replace(world.nodes[node], ready=False, since=world.now)
    assert world.loops(5) == []


def stuck(world: Scene, node: str) -> None:
    """Work with volumes on a node: a pod that runs as far as is known, and one that was asked to leave."""
    world.put(
        make.pod("web", node=node, like=make.shape(claims=("home",))),
        make.pod("old", node=node, like=make.shape(claims=("data",)), deleting=True),
    )


def test_the_node_of_a_machine_that_is_ended_from_outside_is_deleted_at_once() -> None:
    """And its pods with it, by Kubernetes: kube/test_kube_dead_nodes.py."""
    world = scene()
    (node,) = world.add(GPU, 1)
    stuck(world, node)
    assert world.loops(3) == []
    world.instance(node, state="terminated")
    assert kinds(world.loop()) == [f"RemoveNode {node}"]


def test_the_node_of_a_machine_that_no_group_has_is_deleted_two_minutes_after_its_last_word() -> None:
    world = scene()
    (node,) = world.add(GPU, 1)
    stuck(world, node)
    world.loop()
    world.groups[GPU.name] = make.state(GPU)
    world.nodes[node] = replace(world.nodes[node], ready=False, since=world.now)
    assert world.loops(11) == []
    assert kinds(world.loop()) == [f"RemoveNode {node}"]


def test_a_node_whose_gpus_went_away_with_work_on_it_is_kept() -> None:
    without = {name: amount for name, amount in GPU.allocatable.items() if name != "nvidia.com/gpu"}
    world = scene()
    (node,) = world.add(GPU, 1, allocatable=without)
    running(world, node)
    world.loop()
    world.now += 10_000
    assert world.loops(5) == []


def test_pods_of_replica_sets_are_forced_too() -> None:
    world = scene()
    (node,) = world.add(GPU, 1)
    owner = Owner("StatefulSet", "notebook", "uid")
    world.put(make.pod("notebook", node=node, owner=owner, local_storage=True))
    world.instance(node, lifecycle=WAITS)
    assert [type(action) for action in world.loop()] == [TaintNode, Tell]
    world.now += GPU.drain_timeout_seconds - 80
    assert [type(action) for action in world.loop()] == [Evict]


def test_a_lingering_node_of_an_ended_machine_keeps_our_taint() -> None:
    """Its instance is no more in its group, and EC2 still tells of it: no work may come to it meanwhile."""
    world = scene()
    (node,) = world.add(GPU, 1)
    world.settled()
    assert kinds(world.loop()) == [f"TaintNode {node}"]
    world.nodes[node] = replace(world.nodes[node], ready=False, since=world.now)
    world.groups[GPU.name] = replace(world.groups[GPU.name], instances=(), desired=0)
    assert not of(FreeNode, world.loops(3))


def test_the_node_of_a_machine_that_we_ended_says_that_it_is_ready_for_a_while() -> None:
    """Its kubelet's last word is believed until the node's controller hears nothing for long enough."""
    world = scene()
    (node,) = world.add(GPU, 1)
    world.settled()
    assert [type(action) for action in world.loops(6)] == [TaintNode, Terminate, Release]
    world.nodes[node] = replace(world.nodes[node], ready=True)
    assert world.loops(3) == []
    world.now += 600 + GPU.drain_timeout_seconds
    assert of(FreeNode, world.loop()), "it lives on: it was taken out of its group, and is free"
