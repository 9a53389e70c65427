"""Whole loops: failures, growth and scale-in together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from autoscaler import make
from autoscaler.make import GPU_TOLERATION, NOW, P3
from autoscaler.scale_down_scene import of
from msgspec.structs import replace

from infra.autoscaler.decide import decide
from infra.autoscaler.decision import Decision, FreeNode, SetDesired, Terminate
from infra.autoscaler.memory import Booking, Drain, Memory, Resize
from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.snapshot import (
    DRAIN_TAINT,
    GPU,
    GangSet,
    GroupState,
    Node,
    Pod,
    Snapshot,
)

WEST = make.group(zones=("us-west-2a",))
EAST = make.group("us-east-1", zones=("us-east-1a",))
CONFIG = make.config(WEST, EAST)
NO_CAPACITY = (
    "We currently do not have sufficient p3.8xlarge capacity in the Availability Zone you requested "
    "(us-west-2a). Launching EC2 instance failed."
)
ASKED = Memory(resizes={WEST.name: Resize(NOW - 30, 0, 6)})


def loop(snapshot: Snapshot, memory: Memory, now: float = NOW) -> Decision:
    return decide(snapshot, memory, CONFIG, now)


def seen(
    nodes: Sequence[Node] = (), pods: Iterable[Pod] = (), west: GroupState | None = None, **more: Any
) -> Snapshot:
    """Nodes of the first region, each with its instance; the second region has none."""
    return make.snapshot(
        nodes, pods, [west or make.state(WEST, instances=len(nodes)), make.state(EAST)], **more
    )


def sizes(decision: Decision) -> dict[str, int]:
    return {action.group: action.desired for action in of(SetDesired, decision.actions)}


def six(*groups: GroupState) -> Snapshot:
    """Six pods that need a machine each."""
    return make.snapshot(pods=make.pods(6, gpus=4), groups=groups)


def test_14_the_remainder_moves_in_the_same_loop() -> None:
    failed = make.failed(WEST, NO_CAPACITY)
    decision = loop(six(make.state(WEST, 6, 1, activities=(failed,)), make.state(EAST)), ASKED)
    # One machine came: its pod waits for that one, five go elsewhere, and AWS stops trying.
    assert sizes(decision) == {WEST.name: 1, EAST.name: 5}
    assert decision.figures.failures == {WEST.name: 1}


def test_19_the_primary_region_wins_again_when_its_bar_ends() -> None:
    failed = make.failed(WEST, NO_CAPACITY)
    first = loop(six(make.state(WEST, 6, 0, activities=(failed,)), make.state(EAST)), ASKED)
    until = first.memory.backoffs[WEST.name].until
    later = seen((), make.pods(2, gpus=4))
    assert sizes(loop(later, first.memory, until - 1)) == {EAST.name: 2}
    assert sizes(loop(later, first.memory, until)) == {WEST.name: 2}


def test_22_work_that_comes_has_a_draining_machine_back() -> None:
    """Nothing is bought for a pod that a machine has room for which was about to go."""
    node = make.node(WEST, taints=(*WEST.taints, Taint(DRAIN_TAINT, f"{NOW - 10:.0f}")))
    drain = Drain(WEST.name, node.instance, "tainted", NOW - 10, NOW - 10, "it is idle")
    decision = loop(seen([node], make.pods(1, gpus=4)), Memory(drains={node.name: drain}))
    assert [type(action) for action in decision.actions] == [FreeNode]
    assert decision.memory.drains == {}


def test_32_above_45_percent_unready_nothing_is_written() -> None:
    def cluster(lost: int) -> Snapshot:
        nodes = [make.node(WEST, number) for number in range(1, 11)]
        nodes = [replace(each, ready=number >= lost) for number, each in enumerate(nodes)]
        return seen(nodes, make.pods(60, gpus=4))

    idle = Memory(idle={make.node(WEST, number).name: NOW - 5000 for number in range(1, 11)})
    stopped = loop(cluster(5), idle)
    assert stopped.stopped is not None
    assert stopped.actions == ()
    assert stopped.memory.drains == {}
    fine = loop(cluster(4), idle)
    assert fine.stopped is None
    assert fine.actions


@pytest.mark.parametrize(
    "agent",
    [
        "node.kubernetes.io/not-ready",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.kubernetes.io/network-unavailable",
        "node.cilium.io/agent-not-ready",
    ],
)
def test_30_no_second_machine_while_agents_have_their_taints_on_a_ready_node(agent: str) -> None:
    """A node says that it is ready a moment before the taints of its start are taken off."""
    decision = loop(*joining(taints=(*WEST.taints, Taint(agent))))
    assert sizes(decision) == {}
    assert [each.outcome for each in decision.verdicts] == ["coming"]


def test_30_no_second_machine_while_only_some_gpus_are_there() -> None:
    """As where GPUs are split after the device plugin first told of them."""
    assert sizes(loop(*joining(allocatable={**P3, GPU: 1}))) == {}


def test_30_a_machine_that_stays_smaller_takes_what_fits_it() -> None:
    snapshot, memory = joining(allocatable={**P3, GPU: 1}, created=NOW - 901)
    assert sizes(loop(snapshot, memory)) == {WEST.name: 2}
    fits = replace(snapshot, pods=make.pods(1, gpus=1))
    assert [each.outcome for each in loop(fits, memory).verdicts] == ["fits"]


def test_30_no_second_machine_while_an_adapter_is_not_there() -> None:
    efa = {"vpc.amazonaws.com/efa": 1}
    group = make.group(zones=("us-west-2a",), allocatable={**P3, **efa})
    snapshot, memory = joining(allocatable=P3)
    work = replace(snapshot, pods=make.pods(1, gpus=4, extra=efa))
    assert sizes(decide(work, memory, make.config(group, EAST), NOW)) == {}


def joining(**node: Any) -> tuple[Snapshot, Memory]:
    """A pod that waits, and its machine, whose node has become ready three seconds ago."""
    instance = make.instance(WEST, launched=NOW - 200)
    joined = make.node(WEST, **{"created": NOW - 60, "since": NOW - 3, **node})
    snapshot = seen([joined], make.pods(1, gpus=4), make.state(WEST, 1, [instance]))
    return snapshot, Memory(boots={instance.id: NOW - 190})


def test_32_machines_that_never_came_up_do_not_keep_us_from_ending_them() -> None:
    """A broken image: eight machines of which none joins are all that there is."""
    instances = [make.instance(WEST, number, launched=NOW - 2000) for number in range(1, 9)]
    memory = Memory(boots={each.id: NOW - 910 for each in instances})
    decision = loop(seen((), make.pods(8, gpus=4), make.state(WEST, 8, instances)), memory)
    assert decision.stopped is None
    assert of(Terminate, decision.actions)
    assert sizes(decision) == {EAST.name: 8}


def test_23_a_node_left_over_from_another_name_does_not_end_the_machine() -> None:
    """The instance is the same; work runs on the node that it is now."""
    now = make.node(WEST, created=NOW - 1000)
    before = make.node(WEST, name="before", ready=False, created=NOW - 90_000, since=NOW - 2000)
    runs = make.pod("run", node=now.name, gpus=4, owner=make.job())
    one = make.state(WEST, instances=1)
    decision = loop(seen([before, now], [runs], one), Memory(idle={"before": NOW - 2000}))
    assert not of(Terminate, decision.actions)


def test_05_a_pod_nominated_to_a_node_that_is_no_more_waits_like_any_other() -> None:
    lost = make.pods(1, gpus=4, nominated="gone")
    decision = loop(seen((), lost), Memory())
    assert sizes(decision) == {WEST.name: 1}


@pytest.mark.parametrize(("left", "bought"), [(25, 0), (-10, 0), (-60, 4), (600, 4)])
def test_02_a_gang_that_begins_anew_takes_the_places_of_its_pods_that_leave(left: int, bought: int) -> None:
    """They hold their GPUs for as long as their grace; a new machine would be there later. What outstays
    it, or has hours of it, is not waited for."""
    key = make.key_of()
    like = make.shape(gpus=4)
    nodes = [make.node(WEST, number) for number in range(1, 5)]
    old = [
        make.pod(f"old-{each.name}", like, node=each.name, deleting=True, ends=NOW + left, gang=key)
        for each in nodes
    ]
    new = make.pods(4, "new", like, gang=key)
    decision = loop(seen(nodes, [*old, *new], gangs=[make.gang("train", 4, like)]), Memory())
    assert sizes(decision) == ({WEST.name: 4 + bought} if bought else {})


class Odd:
    """Machines of one group that are not as it promises, and pods that each want a whole one."""

    def __init__(self, **node: Any) -> None:
        self.node = node

    def snapshot(self, count: int, waiting: int = 5) -> Snapshot:
        nodes = [make.node(WEST, number, **self.node) for number in range(1, count + 1)]
        states = [make.state(WEST, instances=count), replace(make.state(EAST), max=0)]
        return make.snapshot(nodes, make.pods(waiting, gpus=4), states)


def test_09_no_more_machines_for_work_that_the_last_ones_did_not_take() -> None:
    """What a group promises and its machines do not hold would be bought for ever."""
    odd = Odd(allocatable={**P3, GPU: 3})
    first = loop(odd.snapshot(3), Memory())
    assert sizes(first) == {}
    [verdict] = first.verdicts
    assert verdict.outcome == "waits"
    assert [each.code for each in verdict.obstacles if each.group == WEST.name] == ["mismatch"]
    assert [(each.kind, each.about) for each in first.notices] == [("misfit", WEST.name)]
    # They were idle, and are gone: nothing is bought anew until the bar ends. Other work is no part of it.
    [bar] = first.memory.misfits.values()
    assert sizes(loop(odd.snapshot(0), first.memory, bar.until - 1)) == {}
    assert sizes(loop(odd.snapshot(0), first.memory, bar.until)) == {WEST.name: 5}
    small = replace(odd.snapshot(0), pods=make.pods(1, gpus=2))
    assert sizes(loop(small, first.memory, bar.until - 1)) == {WEST.name: 1}
    # The next time in a row it is longer.
    again = loop(odd.snapshot(3), first.memory, bar.until + 1)
    [longer] = again.memory.misfits.values()
    assert longer.until - longer.last == 2 * (bar.until - bar.last)


def test_09_one_odd_machine_bars_nothing() -> None:
    assert sizes(loop(Odd(allocatable={**P3, GPU: 3}).snapshot(1, 1), Memory())) == {WEST.name: 2}


def test_09_machines_without_the_label_that_their_group_promises_are_not_bought_again() -> None:
    group = make.group(zones=("us-west-2a",), labels={"team": "vision"})
    nodes = [make.node(group, number) for number in range(1, 4)]
    bare = [replace(each, labels={k: v for k, v in each.labels.items() if k != "team"}) for each in nodes]
    work = make.pods(5, gpus=4, selector=(("team", "vision"),))
    for found, bought in ((bare, {}), (nodes[:1] + bare[1:], {group.name: 7})):
        snapshot = make.snapshot(found, work, [make.state(group, instances=3)])
        assert sizes(decide(snapshot, Memory(), make.config(group), NOW)) == bought


def test_19_one_answer_that_fails_does_not_buy_it_all_elsewhere() -> None:
    """Six machines were asked for a minute ago; then their region can't be read."""
    snapshot = replace(six(make.state(EAST)), errors={"aws/us-west-2": "no answer"})
    asked = Memory(resizes={WEST.name: Resize(NOW - 60, 0, 6)})
    assert sizes(loop(snapshot, asked)) == {}
    # What has joined is on its way no more, and what should have is waited for no longer.
    joined = replace(snapshot, nodes=(make.node(WEST),))
    busy = make.pod("busy", gpus=4, node=joined.nodes[0].name)
    assert sizes(loop(replace(joined, pods=(*joined.pods, busy)), asked)) == {EAST.name: 1}
    assert sizes(loop(snapshot, asked, NOW - 60 + CONFIG.boot_timeout)) == {EAST.name: 6}


def test_30_a_machine_that_comes_out_of_a_warm_pool_is_on_its_way() -> None:
    """Its node is an old one, which sleeps, and has the taint with which it was sent there."""
    asleep = make.node(
        WEST, created=NOW - 9000, since=NOW - 4000, ready=False, taints=(Taint(DRAIN_TAINT, "1"),)
    )
    instance = make.instance(WEST, launched=NOW - 9000, lifecycle="Pending")
    waits = make.pods(1, gpus=4)
    memory = Memory()
    for node, lifecycle, done in (
        (asleep, "Pending", []),
        (asleep, "InService", []),
        (replace(asleep, ready=True, since=NOW), "InService", [FreeNode]),
    ):
        state = make.state(WEST, instances=[replace(instance, lifecycle=lifecycle)])
        decision = loop(seen([node], waits, state), memory)
        assert [type(action) for action in decision.actions] == done
        memory = decision.memory


def test_30_a_machine_that_goes_to_sleep_in_a_warm_pool_is_no_place_for_work() -> None:
    warm = make.instance(WEST, lifecycle="Warmed:Pending")
    snapshot = seen([make.node(WEST)], make.pods(1, gpus=4), make.state(WEST, 0, [warm]))
    assert sizes(loop(snapshot, Memory())) == {WEST.name: 1}


def test_12_nothing_is_bought_for_pods_of_a_request_that_are_over() -> None:
    """Two of its four pods have ended before its booking has, and others have their machines."""
    like = make.shape(gpus=4)
    request = make.gang("train", 4, like, kind="ProvisioningRequest", condition="Provisioned")
    nodes = [make.node(WEST, number) for number in range(1, 5)]
    run = [make.pod(f"run-{each.name}", like, node=each.name, gang=request.key) for each in nodes[:2]]
    others = [make.pod(f"other-{each.name}", gpus=4, node=each.name) for each in nodes[2:]]
    booking = Booking(tuple(each.name for each in nodes), NOW + 400)
    memory = Memory(bookings={request.key: booking})
    decision = loop(seen(nodes, [*run, *others], gangs=[request]), memory)
    assert decision.actions == ()
    assert decision.memory.bookings == {request.key: booking}


def test_12_a_member_where_the_rest_never_fits_does_not_keep_it_waiting() -> None:
    """The scheduler knows no gangs: it has put the first of eight on the only machine of a rack."""
    key, like = make.key_of(), make.shape(gpus=4)
    first = make.pod("train-0", like, node="titan-a01", gang=key)
    rest = make.pods(7, "train", like, gang=key)
    gang = make.gang("train", 8, like)
    alone = seen([make.titan()], [first, *rest], make.state(WEST), gangs=[gang])
    assert sizes(loop(alone, Memory())) == {WEST.name: 7}
    # Where there would be room, if others went, it waits for that.
    busy = [make.pod(each.name, gpus=4, node=each.name) for each in make.titans(8)[1:]]
    full = replace(alone, nodes=make.titans(8), pods=(first, *rest, *busy))
    assert sizes(loop(full, Memory())) == {}


def test_12_a_launcher_without_gpus_does_not_bind_the_workers_to_its_site() -> None:
    key = make.key_of(kind="JobSet")
    worker, launcher = make.shape(gpus=4), make.shape(tolerations=(GPU_TOLERATION,))
    nodes = make.titans(8)
    busy = [make.pod(each.name, gpus=4, node=each.name) for each in nodes]
    runs = make.pod("launcher", launcher, node=nodes[0].name, gang=key)
    gang = make.gang("train", 8, worker, kind="JobSet", sets=(GangSet(launcher, 1), GangSet(worker, 7)))
    waiting = make.pods(7, "worker", worker, gang=key)
    snapshot = seen(nodes, [runs, *busy, *waiting], make.state(WEST), gangs=[gang])
    decision = loop(snapshot, Memory())
    assert sizes(decision) == {WEST.name: 7}


NO_GPUS = {name: amount for name, amount in P3.items() if name != GPU}


def test_30_an_idle_machine_whose_gpus_are_away_for_a_moment_is_not_ended() -> None:
    """Their plugin is replaced. The machine is old, and has been kept idle for long."""
    node = make.node(WEST, allocatable=NO_GPUS)
    snapshot = seen([node], make.pods(1, gpus=4))
    decision = loop(snapshot, Memory(idle={node.name: NOW - 5000}))
    assert decision.actions == (), "it is waited for"
    later = NOW + CONFIG.boot_timeout
    assert [each.forced for each in of(Terminate, loop(snapshot, decision.memory, later).actions)] == [True]


def test_32_gpus_that_are_away_from_machines_that_work_stop_nothing() -> None:
    nodes = [make.node(WEST, number, allocatable=NO_GPUS) for number in range(1, 11)]
    work = [make.pod(each.name, gpus=4, node=each.name) for each in nodes]
    decision = loop(seen(nodes, [*work, *make.pods(1, gpus=4)]), Memory())
    assert decision.stopped is None
    assert not of(Terminate, decision.actions)


def test_22_a_machine_does_not_inherit_the_end_of_one_that_had_its_name() -> None:
    """Names are made of addresses, which are given out again."""
    node = make.node(WEST, 2, name="ip-10-0-0-5", created=NOW - 300)
    drain = Drain(WEST.name, make.instance_id(WEST, 1), "ending", NOW - 400, NOW - 500, "it was idle")
    state = make.state(WEST, instances=[make.instance(WEST, 2)])
    decision = loop(seen([node], (), state), Memory(drains={node.name: drain}))
    assert decision.actions == ()
    assert decision.memory.drains == {}


def test_23_a_machine_under_the_node_of_one_that_had_its_name_is_not_ended() -> None:
    """Its address was given out again, and its kubelet found a node of that name: work runs on it."""
    instance = make.instance(WEST, 2, launched=NOW - 2000, host="ip-10-0-0-5")
    node = make.node(WEST, 1, name="ip-10-0-0-5")
    runs = make.pod("run", gpus=4, node=node.name, owner=make.job())
    memory = Memory(boots={instance.id: NOW - 1500})
    decision = loop(seen([node], [runs], make.state(WEST, instances=[instance])), memory)
    assert decision.actions == ()
    assert decision.memory.boots == {}
