"""Whole loops: failures, growth and scale-in together."""

from __future__ import annotations

from autoscaler import making
from autoscaler.making import NOW
from autoscaler.scene import of
from msgspec.structs import replace

from infra.autoscaler.decide import decide
from infra.autoscaler.decision import Decision, FreeNode, SetDesired, TaintNode
from infra.autoscaler.memory import Drain, Memory, Resize
from infra.autoscaler.ordering import DRAIN_TAINT
from infra.autoscaler.world import GroupState, Snapshot, Taint

WEST = making.group(zones=("us-west-2a",))
EAST = making.group("us-east-1", zones=("us-east-1a",))
CONFIG = making.config(WEST, EAST)
NO_CAPACITY = (
    "We currently do not have sufficient p3.8xlarge capacity in the Availability Zone you requested "
    "(us-west-2a). Launching EC2 instance failed."
)
ASKED = Memory(resizes={WEST.name: Resize(NOW - 30, 0, 6)})


def loop(snapshot: Snapshot, memory: Memory, now: float = NOW) -> Decision:
    return decide(snapshot, memory, CONFIG, now)


def sizes(decision: Decision) -> dict[str, int]:
    return {action.group: action.desired for action in of(SetDesired, decision.actions)}


def six(*groups: GroupState) -> Snapshot:
    """Six pods that need a machine each."""
    return making.snapshot(pods=making.pods(6, gpus=4), groups=groups)


def test_14_the_remainder_moves_in_the_same_loop() -> None:
    failed = making.failed(WEST, NO_CAPACITY)
    decision = loop(six(making.state(WEST, 6, 1, activities=(failed,)), making.state(EAST)), ASKED)
    # One machine came: its pod waits for that one, five go elsewhere, and AWS stops trying.
    assert sizes(decision) == {WEST.name: 1, EAST.name: 5}
    assert decision.figures.failures == {WEST.name: 1}


def test_14_without_a_failure_all_of_it_is_waited_for() -> None:
    decision = loop(six(making.state(WEST, 6, 1), making.state(EAST)), ASKED)
    assert sizes(decision) == {}


def test_19_the_primary_region_wins_again_when_its_bar_ends() -> None:
    failed = making.failed(WEST, NO_CAPACITY)
    first = loop(six(making.state(WEST, 6, 0, activities=(failed,)), making.state(EAST)), ASKED)
    until = first.memory.backoffs[WEST.name].until
    later = making.snapshot(pods=making.pods(2, gpus=4), groups=[making.state(WEST), making.state(EAST)])
    assert sizes(loop(later, first.memory, until - 1)) == {EAST.name: 2}
    assert sizes(loop(later, first.memory, until)) == {WEST.name: 2}


def test_22_work_that_comes_has_a_draining_machine_back() -> None:
    """Nothing is bought for a pod that a machine has room for which was about to go."""
    node = making.node(WEST, taints=(*WEST.taints, Taint(DRAIN_TAINT, f"{NOW - 10:.0f}")))
    drain = Drain(WEST.name, node.instance, "tainted", NOW - 10, NOW - 10, "it is idle")
    snapshot = making.snapshot(
        [node], making.pods(1, gpus=4), [making.state(WEST, instances=1), making.state(EAST)]
    )
    decision = loop(snapshot, Memory(drains={node.name: drain}))
    assert [type(action) for action in decision.actions] == [FreeNode]
    assert decision.memory.drains == {}


def test_32_above_45_percent_unready_nothing_is_written() -> None:
    def cluster(lost: int) -> Snapshot:
        nodes = [making.node(WEST, number) for number in range(1, 11)]
        nodes = [replace(each, ready=number >= lost) for number, each in enumerate(nodes)]
        state = making.state(WEST, instances=10)
        return making.snapshot(nodes, making.pods(60, gpus=4), [state, making.state(EAST)])

    idle = Memory(idle={making.node(WEST, number).name: NOW - 5000 for number in range(1, 11)})
    stopped = loop(cluster(5), idle)
    assert stopped.stopped is not None
    assert stopped.actions == ()
    assert stopped.memory.drains == {}
    fine = loop(cluster(4), idle)
    assert fine.stopped is None
    assert fine.actions


def test_the_same_inputs_give_the_same_answer() -> None:
    nodes = [making.node(WEST, number) for number in range(1, 6)]
    memory = Memory(idle={node.name: NOW - 5000 for node in nodes})
    snapshot = making.snapshot(nodes, groups=[making.state(WEST, instances=5), making.state(EAST)])
    first, second = loop(snapshot, memory), loop(snapshot, memory)
    assert first == second
    assert of(TaintNode, first.actions)
