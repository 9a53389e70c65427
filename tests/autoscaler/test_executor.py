"""What is decided is done: in order where order matters, side by side where it does not, and no further than
what it rests on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from autoscaler import make
from msgspec.structs import replace

from infra.autoscaler import executor
from infra.autoscaler.config import Config
from infra.autoscaler.decision import (
    Action,
    Answer,
    Decision,
    Done,
    Evict,
    FreeNode,
    Release,
    RemoveNode,
    Result,
    SetDesired,
    TaintNode,
    Terminate,
)
from infra.autoscaler.memory import Drain, Memory
from infra.autoscaler.observed.snapshot import Node, Pod

WEST, EAST = make.group("us-west-2"), make.group("us-east-1")
CONFIG = make.config(WEST, EAST)
ONE, TWO = make.node(WEST, 1), make.node(WEST, 2)


@dataclass
class World:
    """Both sides: writes down what is asked of it, and answers as told."""

    asked: list[Any] = field(default_factory=list)
    answers: dict[type, Result | Exception] = field(default_factory=dict)
    pods: dict[str, Sequence[Pod]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    ends: bool | None = True
    before: Callable[[Any], None] = lambda action: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def do(self, action: Any) -> Result:
        self.before(action)
        with self._lock:
            self.asked.append(action)
        answer = self.answers.get(type(action), Result("done"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    set_desired = terminate = release = do

    def pods_on(self, node: str) -> Sequence[Pod]:
        found = self.pods.get(node, ())
        if isinstance(found, Exception):
            raise found
        return found

    def node(self, name: str) -> Node | None:
        return self.nodes.get(name)

    def node_of(self, instance: str) -> Node | None:
        return next((each for each in self.nodes.values() if each.instance == instance), None)

    def ended(self, region: str, instance: str) -> bool | None:
        with self._lock:
            self.asked.append((region, instance))
        return self.ends


def run(world: World, *actions: Action, config: Config = CONFIG, **more: Any) -> list[Done]:
    memory = more.pop("memory", Memory())
    return list(executor.run(Decision(0.0, actions, memory), world, world, config, **more))


def statuses(done: Sequence[Done]) -> list[str]:
    return [each.result.status for each in done]


def end(node: Node = ONE, *, forced: bool = False) -> Terminate:
    return Terminate(WEST.name, node.instance, node.name, "idle", forced)


def test_each_action_goes_to_its_side_and_comes_back_in_order() -> None:
    world = World(nodes={"gone": make.node(WEST, 9, name="gone", uid="uid-gone")})
    actions: list[Action] = [
        SetDesired(WEST.name, 0, 3, "for pods"),
        Answer("ProvisioningRequest/a/b", "a", "b", "Accepted", "Accepted", "is looked at"),
        TaintNode("a", "idle"),
        FreeNode("b", "work came"),
        Evict("ns", "pod", "uid", "c", "drains"),
        Terminate(WEST.name, "i-1", "d", "idle"),
        Release(EAST.name, "i-2", "e", "drained"),
        RemoveNode("gone", "uid-gone", "its machine is gone"),
    ]
    done = run(world, *actions)
    assert [each.action for each in done] == actions
    assert statuses(done) == ["done"] * 8
    assert [each for each in world.asked if not isinstance(each, tuple)] != []
    assert set(map(type, world.asked)) == {*map(type, actions), tuple}


def test_22_a_pod_that_has_come_since_keeps_its_machine() -> None:
    world = World(pods={ONE.name: [make.pod("new", node=ONE.name)]})
    (done,) = run(world, end())
    assert (done.result.status, done.result.text.split()[0]) == ("stale", "user-ada/new")
    assert world.asked == []


@pytest.mark.parametrize(
    "pod",
    [
        make.pod("daemon", node=ONE.name, owner=make.DAEMON),
        make.pod("static", node=ONE.name, mirror=True),
        make.pod("over", node=ONE.name, phase="Succeeded"),
    ],
    ids=lambda pod: pod.name,
)
def test_22_what_is_no_work_keeps_no_machine(pod: Pod) -> None:
    assert statuses(run(World(pods={ONE.name: [pod]}), end())) == ["done"]


def test_23_a_lost_machine_that_has_come_back_with_work_stays() -> None:
    """It was to be ended as it was not ready, and held no work but what was asked to leave."""
    leaving = make.pod("old", node=ONE.name, deleting=True)
    world = World(pods={ONE.name: [leaving]})
    assert statuses(run(world, end(forced=True))) == ["done"]
    world.pods[ONE.name] = [leaving, make.pod("new", node=ONE.name)]
    assert statuses(run(world, end(forced=True))) == ["stale"]


def test_23_a_machine_that_has_joined_since_with_work_stays() -> None:
    """It was to be ended as it did not join in time."""
    late = Terminate(WEST.name, ONE.instance, "", "it did not join", True)
    assert statuses(run(World(), late)) == ["done"]
    world = World(nodes={ONE.name: ONE}, pods={ONE.name: [make.pod("new", node=ONE.name)]})
    assert statuses(run(world, late)) == ["stale"]
    world.pods.clear()
    assert statuses(run(world, late)) == ["done"]


def test_23_pods_of_another_machine_with_its_nodes_name_keep_it_not() -> None:
    other = replace(ONE, provider=TWO.provider)
    world = World(nodes={ONE.name: other}, pods={ONE.name: [make.pod("new", node=ONE.name)]})
    assert statuses(run(world, end(forced=True))) == ["done"]


def test_22_pods_that_cannot_be_read_keep_their_machine() -> None:
    world = World(pods={ONE.name: OSError("no route")})  # type: ignore[dict-item]
    (done,) = run(world, end())
    assert done.result.status == "refused"
    assert "no route" in done.result.text
    assert world.asked == []
    assert statuses(run(world, end(forced=True))) == ["done"], "it ends in any case"


@pytest.mark.parametrize(
    "answer",
    [Result("refused", "no"), Result("failed", "no answer"), Result("stale", "busy"), ValueError("a fault")],
    ids=str,
)
def test_28_a_failed_terminate_never_deletes_the_node(answer: Result | Exception) -> None:
    world = World(answers={Terminate: answer}, nodes={ONE.name: ONE, TWO.name: TWO})
    done = run(world, end(), RemoveNode(ONE.name, ONE.uid, ""), RemoveNode(TWO.name, TWO.uid, ""))
    assert done[1].result.status == "stale"
    assert [each for each in world.asked if isinstance(each, RemoveNode)] == [
        RemoveNode(TWO.name, TWO.uid, "")
    ]


@pytest.mark.parametrize(("ends", "status"), [(True, "done"), (False, "stale"), (None, "refused")])
def test_28_a_node_is_deleted_once_ec2_says_that_its_machine_is_gone(ends: bool | None, status: str) -> None:
    world = World(nodes={ONE.name: ONE}, ends=ends)
    assert statuses(run(world, RemoveNode(ONE.name, ONE.uid, ""))) == [status]
    assert ("us-west-2", ONE.instance) in world.asked
    assert any(isinstance(each, RemoveNode) for each in world.asked) is (ends is True)


def test_28_other_nodes_are_not_deleted() -> None:
    physical, elsewhere = make.titan(), make.node(WEST, 3, provider="aws:///ap-south-1a/i-1")
    world = World(nodes={each.name: each for each in (ONE, physical, elsewhere)})
    done = run(
        world,
        RemoveNode("not-there", "uid", ""),
        RemoveNode(ONE.name, "another-uid", ""),
        RemoveNode(physical.name, physical.uid, ""),
        RemoveNode(elsewhere.name, elsewhere.uid, ""),
    )
    assert statuses(done) == ["needless", "needless", "refused", "refused"]
    assert world.asked == []


def test_a_node_that_could_not_be_tainted_is_not_drained_by_choice() -> None:
    world = World(answers={TaintNode: Result("refused", "no")})
    taint, leave = TaintNode(ONE.name, "idle"), Evict("ns", "pod", "uid", ONE.name, "drains")
    forced = Evict("ns", "pod", "uid", ONE.name, "is taken away", by=1.0)
    assert statuses(run(world, taint, leave, end())) == ["refused", "stale", "stale"]
    assert statuses(run(world, taint, forced, end(forced=True))) == ["refused", "done", "done"]


def test_24_a_budget_that_says_no_keeps_one_pod_and_no_other() -> None:
    world = World(answers={Evict: Result("refused", "a budget")})
    pods = [Evict("ns", f"pod-{number}", "uid", ONE.name, "drains") for number in range(3)]
    assert statuses(run(world, *pods)) == ["refused"] * 3
    assert len(world.asked) == 3


def test_33_an_exception_is_contained_in_its_action() -> None:
    def before(action: Any) -> None:
        if getattr(action, "group", "") == WEST.name:
            raise RuntimeError("odd")

    world = World(before=before)
    done = run(world, SetDesired(WEST.name, 0, 3, ""), SetDesired(EAST.name, 0, 3, ""), FreeNode("a", ""))
    assert statuses(done) == ["failed", "done", "done"]
    assert done[0].result.text == "RuntimeError: odd"


def test_19_a_region_that_does_not_answer_holds_up_no_other() -> None:
    rest_is_done = threading.Event()
    done_elsewhere: list[Any] = []

    def before(action: Any) -> None:
        if getattr(action, "group", "") == WEST.name:
            assert rest_is_done.wait(30)
        else:
            done_elsewhere.append(action)
            if len(done_elsewhere) == 3:
                rest_is_done.set()

    many = [make.group(pool=f"pool-{number}") for number in range(20)]
    actions: list[Action] = [SetDesired(WEST.name, 0, 1, "")] * 20
    actions += [SetDesired(EAST.name, 0, 1, ""), FreeNode("a", ""), Answer("g", "a", "b", "Accepted", "", "")]
    done = run(World(before=before), *actions, config=make.config(WEST, EAST, *many))
    assert statuses(done) == ["done"] * 23


def test_the_actions_of_a_node_are_done_in_order() -> None:
    world = World(nodes={ONE.name: ONE})
    actions = (
        TaintNode(ONE.name, ""),
        Evict("ns", "a", "uid", ONE.name, ""),
        Evict("ns", "b", "uid", ONE.name, ""),
        end(),
        RemoveNode(ONE.name, ONE.uid, ""),
    )
    memory = Memory(drains={ONE.name: Drain(WEST.name, ONE.instance, "tainted", 0.0, 0.0, "idle")})
    run(world, *actions, memory=memory)
    assert [each for each in world.asked if not isinstance(each, tuple)] == list(actions)


def test_who_is_told_to_stop_begins_nothing_more() -> None:
    world = World()
    going = iter([True, True, False, False])
    actions = [Evict("ns", f"pod-{number}", "uid", ONE.name, "drains") for number in range(4)]
    done = run(world, *actions, go_on=lambda: next(going))
    assert statuses(done) == ["done", "done", "stale", "stale"]
    assert len(world.asked) == 2
